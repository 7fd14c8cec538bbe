/* SPDX-License-Identifier: Apache-2.0 */
/* PCRE2 behind one contract. Patterns are compiled by its JIT where there is one; the interpreter
 * is the fallback, under the same limits. */
#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "caisson/limits.h"

enum { MAX_PATTERN_BYTES = 1 << 20, MAX_PARENS = 100 };

struct csn_regex {
    pcre2_code *code;
};

struct csn_regex_scratch {
    pcre2_general_context *general;
    pcre2_match_context *match;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
};

static void *mem_alloc(size_t n, void *ctx) {
    (void)ctx;
    caisson_error err;
    void *p = NULL;
    return csn_realloc(&p, n, 1, &err) == CAISSON_OK ? p : NULL;
}

static void mem_free(void *p, void *ctx) {
    (void)ctx;
    csn_free(p);
}

caisson_status csn_regex_compile(csn_str pattern, csn_regex **ret, caisson_error *err) {
    caisson_status status = CAISSON_OK;
    csn_regex *re;
    CSN_TRY(CSN_NEW(1, &re, err));
    pcre2_general_context *general = pcre2_general_context_create(mem_alloc, mem_free, NULL);
    pcre2_compile_context *ctx = general == NULL ? NULL : pcre2_compile_context_create(general);
    if (ctx == NULL) {
        status = csn_fail_nomem(err, pattern.len);
        goto out;
    }
    pcre2_set_max_pattern_length(ctx, MAX_PATTERN_BYTES);
    pcre2_set_parens_nest_limit(ctx, MAX_PARENS);
    pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE at = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    const char *bytes = pattern.len > 0 ? pattern.ptr : "";
    re->code = pcre2_compile((PCRE2_SPTR)bytes, pattern.len, options, &code, &at, ctx);
    if (re->code == NULL) {
        PCRE2_UCHAR why[96] = "";
        pcre2_get_error_message(code, why, sizeof(why));
        bool is_memory = code == PCRE2_ERROR_NOMEMORY || code == 121; /* 121: heap failed */
        status = is_memory ? csn_fail_nomem(err, pattern.len)
                           : CSN_FAIL(err, CAISSON_E_PARSE, .what = "regular expression not valid",
                                      CSN_AT(at), .want = csn_str_from((const char *)why));
        goto out;
    }
    /* Not every machine or build has a JIT: then pcre2_match interprets. */
    if (pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == PCRE2_ERROR_NOMEMORY) {
        status = csn_fail_nomem(err, pattern.len);
    }
out:
    pcre2_compile_context_free(ctx);
    pcre2_general_context_free(general);
    if (status != CAISSON_OK) {
        csn_regex_free(re);
        return status;
    }
    *ret = re;
    return CAISSON_OK;
}

void csn_regex_free(csn_regex *re) {
    if (re == NULL) {
        return;
    }
    pcre2_code_free(re->code);
    csn_free(re);
}

caisson_status csn_regex_scratch_new(csn_regex_scratch **ret, caisson_error *err) {
    enum { FIRST_STACK = 32 << 10, HEAP_KIB = 64 << 10 };
    csn_regex_scratch *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->general = pcre2_general_context_create(mem_alloc, mem_free, NULL);
    if (s->general != NULL) {
        s->match = pcre2_match_context_create(s->general);
        s->data = pcre2_match_data_create(1, s->general);
    }
    if (s->match == NULL || s->data == NULL) {
        csn_regex_scratch_free(s);
        return csn_fail_nomem(err, sizeof(*s));
    }
    pcre2_set_match_limit(s->match, CAISSON_MAX_REGEX_MATCH);
    pcre2_set_depth_limit(s->match, CAISSON_MAX_REGEX_MATCH);
    pcre2_set_heap_limit(s->match, HEAP_KIB);
    s->stack = pcre2_jit_stack_create(FIRST_STACK, CAISSON_MAX_REGEX_STACK, s->general);
    if (s->stack != NULL) { /* NULL also where there is no JIT */
        pcre2_jit_stack_assign(s->match, NULL, s->stack);
    }
    *ret = s;
    return CAISSON_OK;
}

void csn_regex_scratch_free(csn_regex_scratch *s) {
    if (s == NULL) {
        return;
    }
    pcre2_jit_stack_free(s->stack);
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->match);
    pcre2_general_context_free(s->general);
    csn_free(s);
}

caisson_status csn_regex_find(const csn_regex *re, csn_regex_scratch *s, csn_str text, size_t from,
                              bool *found, size_t *start, size_t *end, caisson_error *err) {
    PCRE2_SPTR bytes = (PCRE2_SPTR)(text.len > 0 ? text.ptr : "");
    int rc = pcre2_match(re->code, bytes, text.len, from, PCRE2_NO_UTF_CHECK, s->data, s->match);
    if (rc ==
        PCRE2_ERROR_JIT_STACKLIMIT) { /* repeated groups on a long line: slower, on the heap */
        rc = pcre2_match(re->code, bytes, text.len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s->data, s->match);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        *found = false;
        return CAISSON_OK;
    }
    if (rc < 0) {
        if (rc == PCRE2_ERROR_NOMEMORY) {
            return csn_fail_nomem(err, text.len);
        }
        PCRE2_UCHAR why[96] = "";
        pcre2_get_error_message(rc, why, sizeof(why));
        return CSN_FAIL(err, CAISSON_E_LIMIT, .what = "regular expression passed its limit",
                        CSN_AT(from), .want = csn_str_from((const char *)why));
    }
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(s->data);
    *found = true;
    *start = at[0];
    *end = at[1] < at[0] ? at[0] : at[1]; /* \K in a look-ahead may turn the two around */
    return CAISSON_OK;
}
