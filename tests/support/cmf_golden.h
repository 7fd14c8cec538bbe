/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests over tests/golden/cmf/: paths, expected JSON, opening. */
#ifndef TESTS_SUPPORT_CMF_GOLDEN_H
#define TESTS_SUPPORT_CMF_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "format/cmf/cmf.h"

#define CMF_GOLDEN CSN_SOURCE_DIR "/tests/golden/cmf/"

static inline csn_buf golden_read(const char *path) {
    csn_buf b = {0};
    caisson_error err;
    if (csn_fs_read_all(csn_fs_os(), path, 1 << 28, &b, &err) != CAISSON_OK) {
        fprintf(stderr, "cannot read %s\n", path);
        abort();
    }
    return b;
}

static inline csn_json *golden_json(const char *path) {
    csn_buf b = golden_read(path);
    csn_json *doc = NULL;
    caisson_error err;
    if (csn_json_parse(csn_buf_view(&b), 0, &doc, &err) != CAISSON_OK) {
        fprintf(stderr, "not JSON: %s\n", path);
        abort();
    }
    csn_buf_free(&b);
    return doc;
}

static inline csn_str golden_str(const csn_jval *object, const char *key) {
    csn_str s = {0};
    csn_jval_str(csn_jval_get(object, key), &s);
    return s;
}

static inline uint64_t golden_u64(const csn_jval *object, const char *key) {
    uint64_t u = UINT64_MAX;
    csn_jval_u64(csn_jval_get(object, key), &u);
    return u;
}

static inline uint64_t golden_hex(const csn_jval *object, const char *key) {
    csn_str s = golden_str(object, key);
    char z[32];
    snprintf(z, sizeof(z), "%.*s", CSN_STR_ARGS(s));
    return strtoull(z, NULL, 16);
}

#endif
