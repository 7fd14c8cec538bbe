/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects with a known set of keys, read into a struct by a table.
 *
 *   static const csn_jfield fields[] = {
 *       CSN_JFIELD(struct mask_meta, name, "name", CSN_JT_STR, CSN_JF_REQUIRED),
 *       CSN_JCHECK("parent", CSN_JT_STR, CSN_JF_NULLABLE),      (checked, not stored)
 *   };
 *
 * A required key that is missing, a value of another type, a known key given twice and a null where
 * none may stand are CAISSON_E_PARSE with the key in the error's tensor field. Unknown keys are
 * ignored. Fields whose key is absent or null are left as they were.
 */
#ifndef CSN_BASE_JSON_FIELDS_H
#define CSN_BASE_JSON_FIELDS_H

#include "base/json.h"
#include "base/number.h"

typedef enum csn_jtype {
    CSN_JT_ANY,        /* const csn_jval *, any value */
    CSN_JT_STR,        /* csn_str, good as long as the document */
    CSN_JT_BOOL,       /* bool */
    CSN_JT_U32,        /* uint32_t, an integer below 2^31 */
    CSN_JT_ID,         /* uint32_t, any that fits */
    CSN_JT_U64,        /* uint64_t */
    CSN_JT_F32,        /* float, finite */
    CSN_JT_F64,        /* double, finite */
    CSN_JT_F64_AS_F32, /* double that is finite as a float too: it is computed with as one */
    CSN_JT_OBJECT,     /* const csn_jval * */
    CSN_JT_ARRAY       /* const csn_jval * */
} csn_jtype;

enum { CSN_JF_REQUIRED = 1, CSN_JF_NULLABLE = 2 };

typedef struct csn_jfield {
    const char *key;
    csn_jtype type;
    unsigned flags;
    size_t offset; /* in the struct, or CSN_JF_UNSTORED */
} csn_jfield;

#define CSN_JF_UNSTORED SIZE_MAX
#define CSN_JFIELD(struct_, member, key_, type_, flags_)                                           \
    { (key_), (type_), (flags_), offsetof(struct_, member) }
#define CSN_JCHECK(key_, type_, flags_)                                                            \
    { (key_), (type_), (flags_), CSN_JF_UNSTORED }

/* Reads `object` (anything else: CAISSON_E_PARSE). n <= 64. *ret_seen (may be NULL): bit i is set
 * when fields[i] is there and not null. `where` names the object in errors: "arch.moe", "" = top.
 */
caisson_status csn_jfields_read(const csn_jval *object, const csn_jfield *fields, size_t n,
                                const char *where, void *ret, uint64_t *ret_seen,
                                caisson_error *err);
/* True if `key` is one of the table's. */
bool csn_jfields_know(const csn_jfield *fields, size_t n, csn_str key);
/* A value as a message shows it: of arrays and objects the kind, of NULL nothing. In `buf`, or a
 * literal. */
enum { CSN_BRIEF = 64 };
csn_str csn_jval_brief(const csn_jval *v, char buf[CSN_BRIEF]);
/* CAISSON_E_PARSE about one key of an object: "arch.moe.top_k: <what>". got: the value that is
 * there; NULL: none, or `what` says it. */
caisson_status csn_jfields_fail(caisson_error *err, const char *where, csn_str key,
                                const char *what, csn_str want, const csn_jval *got);

#define CSN_N_FIELDS(table) (sizeof(table) / sizeof((table)[0]))

#endif
