/* SPDX-License-Identifier: Apache-2.0 */
/* Reading config.json so that nothing is overlooked: each key that is asked for is ticked off, and
 * what is left at the end must be known to change no arithmetic, or the conversion is refused
 * (user pain U12). null counts as absent. */
#ifndef CSN_CONVERT_CONFIG_H
#define CSN_CONVERT_CONFIG_H

#include "base/arena.h"
#include "base/json.h"

/* Which biases the recipe says there are. */
typedef enum csn_biases {
    CSN_BIASES_AS_FOUND, /* nothing is said */
    CSN_BIASES_NONE,
    CSN_BIASES_ALL,
    CSN_BIASES_QKV /* of queries, keys and values alone */
} csn_biases;

typedef struct csn_config {
    const csn_jval *object;
    const char *section; /* "config.json", "rope_parameters": where errors say they are */
    bool *used;          /* [members of object] */
    csn_biases attention_bias, mlp_bias; /* filled by the recipe */
    csn_biases output_gate;              /* of latent attention: NONE, ALL or AS_FOUND */
} csn_config;

/* `object` NULL: an empty one. Another kind of value: CAISSON_E_PARSE. */
caisson_status csn_config_init(csn_config *c, const csn_jval *object, const char *section,
                               csn_arena *arena, caisson_error *err);
/* The member, ticked off; NULL if absent or null. */
const csn_jval *csn_config_get(csn_config *c, const char *key);
/* CAISSON_E_MISSING if key, under neither name (other may be NULL), has a value: for what readers
 * of a family take different values for. */
caisson_status csn_config_need(csn_config *c, const char *key, const char *other,
                               caisson_error *err);
/* Leave *ret alone when the key is absent. CAISSON_E_PARSE: another type, or out of range. */
caisson_status csn_config_u32(csn_config *c, const char *key, uint32_t *ret, caisson_error *err);
caisson_status csn_config_f64(csn_config *c, const char *key, double *ret, caisson_error *err);
/* Must be above 0: where 0 would read as "absent", or is divided by. */
caisson_status csn_config_positive(csn_config *c, const char *key, double *ret, caisson_error *err);
caisson_status csn_config_bool(csn_config *c, const char *key, bool *ret, caisson_error *err);
caisson_status csn_config_str(csn_config *c, const char *key, csn_str *ret, caisson_error *err);
/* The key says whether there are biases (absent: `fallback`); *ret is `which` or NONE. */
caisson_status csn_config_biases(csn_config *c, const char *key, bool fallback, csn_biases which,
                                 csn_biases *ret, caisson_error *err);
/* An array of finite numbers, or NULL and 0. */
caisson_status csn_config_f64s(csn_config *c, const char *key, csn_arena *arena, double **ret,
                               uint32_t *ret_n, caisson_error *err);
/* The key, if present, must be false: it switches on what the engine does not run. */
caisson_status csn_config_refuse_true(csn_config *c, const char *key, caisson_error *err);
/* The key, if present, must be this number: another one changes the arithmetic. */
caisson_status csn_config_expect(csn_config *c, const char *key, double value, caisson_error *err);
/* CAISSON_E_UNSUPPORTED with key and value. */
caisson_status csn_config_refuse(const csn_config *c, const char *key, const char *what,
                                 caisson_error *err);
/* Each member must have been asked for, be null, or be listed in csn_config_inert (only where
 * `allow_inert`). */
caisson_status csn_config_end(const csn_config *c, bool allow_inert, caisson_error *err);

/* Keys of config.json that say nothing about the forward pass; NULL-terminated. */
extern const char *const csn_config_inert[];

#endif
