/* SPDX-License-Identifier: Apache-2.0 */
/* The header keys of the second digests (docs/cmf.md, "Digests"), from text to bytes. */
#include "base/base64.h"
#include "format/cmf/cmf_internal.h"

static caisson_status fail(const char *key, const char *what, csn_str want, csn_str got,
                           caisson_error *err) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = csn_str_from(key),
                    .what = what, CSN_TEXTS(want, got));
}

/* Exactly n_want bytes of base64. The text is no longer than the header: nothing is allocated for a
 * number that the file has not the bytes for. */
static caisson_status decode(csn_cmf *c, const char *key, csn_str text, size_t n_want,
                             const uint8_t **ret, caisson_error *err) {
    uint8_t *bytes;
    size_t n;
    if (text.len != csn_base64_len(n_want)) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "header", .tensor = csn_str_from(key),
                        .what = "the base64 text does not have the characters of 16 bytes each",
                        CSN_VALUES(csn_base64_len(n_want), text.len));
    }
    CSN_TRY(CSN_ARENA_NEW(&c->arena, text.len / 4 * 3 + 1, &bytes, err));
    if (!csn_base64_decode(text, bytes, &n) || n != n_want) {
        return fail(key, "not base64", CSN_STR("the standard alphabet, padded"), text, err);
    }
    *ret = bytes;
    return CAISSON_OK;
}

static int section_of(csn_str name) {
    static const int sections[] = {CSN_CMF_DIR, CSN_CMF_MASKS, CSN_CMF_VOCAB, CSN_CMF_INDEX};
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (csn_str_is(name, csn_cmf_section_names[sections[i]])) {
            return sections[i];
        }
    }
    return -1;
}

caisson_status csn_cmf_parse_digests(csn_cmf *c, caisson_error *err) {
    csn_str text;
    if (csn_jval_str(csn_jval_get(c->header, CSN_CMF_TENSOR_DIGESTS), &text)) {
        CSN_TRY(decode(c, CSN_CMF_TENSOR_DIGESTS, text, (size_t)c->dir.n * CSN_DIGEST_BYTES,
                       &c->tensor_digests, err));
    }
    const csn_jval *sections = csn_jval_get(c->header, CSN_CMF_SECTION_DIGESTS);
    for (csn_jiter it = csn_jval_iter(sections); csn_jiter_next(&it);) {
        int s = section_of(it.key);
        if (s < 0) {
            return fail(CSN_CMF_SECTION_DIGESTS, "digest of an unknown section",
                        CSN_STR("directory, masks, vocab or index"), it.key, err);
        }
        if (c->envelope.len[s] == 0) {
            return fail(CSN_CMF_SECTION_DIGESTS, "digest of a section that is not there",
                        (csn_str){0}, it.key, err);
        }
        if (c->section_digest[s] != NULL) {
            return fail(CSN_CMF_SECTION_DIGESTS, "a section is given twice", (csn_str){0}, it.key,
                        err);
        }
        if (!csn_jval_str(it.value, &text)) {
            return fail(CSN_CMF_SECTION_DIGESTS, "digest is not a string", CSN_STR("base64"),
                        it.key, err);
        }
        CSN_TRY(
            decode(c, CSN_CMF_SECTION_DIGESTS, text, CSN_DIGEST_BYTES, &c->section_digest[s], err));
    }
    return CAISSON_OK;
}
