/* SPDX-License-Identifier: Apache-2.0 */
/* Small things that every public function needs. */
#include "api_internal.h"

#include "base/alloc.h"
#include "base/hex.h"

enum { MAX_STRUCT_BYTES = 4096 };

const char *caisson_version(void) {
    return CAISSON_VERSION;
}

caisson_status csn_api_bad_arg(caisson_error *err, const char *what) {
    return CSN_FAIL(err, CAISSON_E_ARG, .what = what);
}

caisson_status csn_api_options(const void *given, size_t known, void *ret, caisson_error *err) {
    memset(ret, 0, known);
    if (given == NULL) {
        return CAISSON_OK;
    }
    size_t n;
    memcpy(&n, given, sizeof(n));
    if (n < sizeof(n) || n > MAX_STRUCT_BYTES) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "struct_size of an options struct is not set",
                        CSN_VALUES(known, n));
    }
    const unsigned char *bytes = given;
    for (size_t i = known; i < n; i++) {
        if (bytes[i] != 0) {
            return CSN_FAIL(err, CAISSON_E_ARG,
                            .what = "an option that this version of the library does not know",
                            CSN_VALUES(known, n));
        }
    }
    memcpy(ret, given, n < known ? n : known);
    return CAISSON_OK;
}

csn_kv_type csn_api_kv_type(caisson_kv_type type) {
    static const csn_kv_type types[] = {
        [CAISSON_KV_DEFAULT] = CSN_KV_F16,
        [CAISSON_KV_F16] = CSN_KV_F16,
        [CAISSON_KV_F32] = CSN_KV_F32,
        [CAISSON_KV_Q8_0] = CSN_KV_Q8_0,
    };
    return types[type];
}

caisson_status csn_api_no_tokenizer(const caisson_model *model, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = model->path, .section = "vocab",
                    .what = "the file has no tokenizer and no tokenizer.json lies beside it");
}

caisson_status csn_api_cannot_run(const caisson_model *model, caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = model->path,
                    .what = "the model was opened with text_only: it cannot run");
}

caisson_status csn_api_sha256_hex(const void *bytes, size_t n, char ret[2 * CSN_SHA256_BYTES + 1],
                                  caisson_error *err) {
    csn_sha256 *s;
    uint8_t digest[CSN_SHA256_BYTES];
    CSN_TRY(csn_sha256_new(&s, err));
    caisson_status status = csn_sha256_add(s, bytes, n, err);
    if (status == CAISSON_OK) {
        status = csn_sha256_end(s, digest, err);
    }
    csn_sha256_free(s);
    if (status == CAISSON_OK) {
        csn_hex_encode(digest, sizeof(digest), ret);
    }
    return status;
}

caisson_text csn_api_take_text(csn_buf *buf) {
    caisson_text text = {buf->ptr, buf->len};
    *buf = CSN_BUF_INIT(buf->max);
    return text;
}

void caisson_text_free(caisson_text *text) {
    if (text != NULL) {
        csn_free(text->ptr);
        *text = (caisson_text){0};
    }
}

void caisson_ids_free(caisson_ids *ids) {
    if (ids != NULL) {
        csn_free(ids->id);
        *ids = (caisson_ids){0};
    }
}
