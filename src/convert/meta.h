/* SPDX-License-Identifier: Apache-2.0 */
/* Reading GGUF metadata of one architecture, with the same rule as config.h: each key
 * "<arch>.…" that nobody asked for is refused by name. */
#ifndef CSN_CONVERT_META_H
#define CSN_CONVERT_META_H

#include "format/gguf/gguf.h"

typedef struct csn_meta {
    const csn_gguf *gguf;
    csn_str arch; /* general.architecture */
    bool *used;   /* [gguf->n_pairs] */
} csn_meta;

caisson_status csn_meta_init(csn_meta *m, const csn_gguf *g, csn_arena *arena, caisson_error *err);
/* The pair "<arch>.<key>", ticked off; NULL if absent. */
const csn_gguf_pair *csn_meta_get(csn_meta *m, const char *key);
/* Leave *ret alone when the key is absent; CAISSON_E_PARSE for another type or range. */
caisson_status csn_meta_u32(csn_meta *m, const char *key, uint32_t *ret, caisson_error *err);
caisson_status csn_meta_f64(csn_meta *m, const char *key, double *ret, caisson_error *err);
caisson_status csn_meta_bool(csn_meta *m, const char *key, bool *ret, caisson_error *err);
caisson_status csn_meta_str(csn_meta *m, const char *key, csn_str *ret, caisson_error *err);
/* CAISSON_E_MISSING-like: the key must be there (CAISSON_E_PARSE). */
caisson_status csn_meta_need_u32(csn_meta *m, const char *key, uint32_t *ret, caisson_error *err);
caisson_status csn_meta_need_f64(csn_meta *m, const char *key, double *ret, caisson_error *err);
caisson_status csn_meta_refuse(const csn_meta *m, const char *key, const char *what,
                               caisson_error *err);
caisson_status csn_meta_end(const csn_meta *m, caisson_error *err);

#endif
