/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processors, as far as they change ids: what is put before and behind a single text. */
#include "text/tokenizer/tok_internal.h"

enum { MAX_AROUND = 64 };

static caisson_status fail_post(caisson_error *err, caisson_status code, const char *what,
                                csn_str got) {
    return csn_tok_fail(err, code, "post_processor", what, got);
}

static caisson_status add_id(csn_postprocessor *p, bool is_before, uint64_t id,
                             caisson_error *err) {
    size_t *n = is_before ? &p->n_before : &p->n_after;
    if (id >= CAISSON_MAX_TOKENS || *n >= MAX_AROUND) {
        return fail_post(err, CAISSON_E_LIMIT, "too many special tokens, or an id is too large",
                         (csn_str){0});
    }
    (is_before ? p->before : p->after)[(*n)++] = (int32_t)id;
    return CAISSON_OK;
}

/* The ids that a template's special token stands for. */
static caisson_status add_special(csn_postprocessor *p, bool is_before, const csn_jval *specials,
                                  csn_str name, caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(specials); csn_jiter_next(&it);) {
        if (!csn_str_eq(it.key, name)) {
            continue;
        }
        const csn_jval *ids = csn_jval_get(it.value, "ids");
        if (csn_jval_kind(ids) != CSN_JSON_ARRAY) {
            break;
        }
        for (csn_jiter k = csn_jval_iter(ids); csn_jiter_next(&k);) {
            uint64_t id;
            if (!csn_jval_u64(k.value, &id)) {
                return fail_post(err, CAISSON_E_PARSE, "id of a special token is not a number",
                                 name);
            }
            CSN_TRY(add_id(p, is_before, id, err));
        }
        return CAISSON_OK;
    }
    return fail_post(err, CAISSON_E_PARSE, "template names a special token that has no ids", name);
}

static caisson_status load_template(csn_postprocessor *p, const csn_jval *v, caisson_error *err) {
    const csn_jval *single = csn_jval_get(v, "single");
    const csn_jval *specials = csn_jval_get(v, "special_tokens");
    if (csn_jval_kind(single) != CSN_JSON_ARRAY) {
        return fail_post(err, CAISSON_E_PARSE, "template `single` is not an array", (csn_str){0});
    }
    bool seen_text = false;
    for (csn_jiter it = csn_jval_iter(single); csn_jiter_next(&it);) {
        csn_str name;
        const csn_jval *text = csn_jval_get(it.value, "Sequence");
        const csn_jval *special = csn_jval_get(it.value, "SpecialToken");
        if (text != NULL) {
            CSN_TRY(csn_tok_str(text, "post_processor", "id", &name, err));
            if (seen_text || !csn_str_is(name, "A")) {
                return fail_post(err, CAISSON_E_UNSUPPORTED,
                                 "template uses a text twice, or a second text", name);
            }
            seen_text = true;
        } else if (special != NULL) {
            CSN_TRY(csn_tok_str(special, "post_processor", "id", &name, err));
            CSN_TRY(add_special(p, !seen_text, specials, name, err));
        } else {
            return fail_post(err, CAISSON_E_PARSE, "template piece is not known", (csn_str){0});
        }
    }
    return seen_text ? CAISSON_OK
                     : fail_post(err, CAISSON_E_UNSUPPORTED, "template leaves the text out",
                                 (csn_str){0});
}

/* ["[SEP]", 102] of BertProcessing and RobertaProcessing. */
static caisson_status load_pair(csn_postprocessor *p, bool is_before, const csn_jval *v,
                                caisson_error *err) {
    csn_jiter it = csn_jval_iter(v);
    csn_str name;
    uint64_t id;
    if (csn_jval_kind(v) != CSN_JSON_ARRAY || csn_jval_len(v) != 2 || !csn_jiter_next(&it) ||
        !csn_jval_str(it.value, &name) || !csn_jiter_next(&it) || !csn_jval_u64(it.value, &id)) {
        return fail_post(err, CAISSON_E_PARSE, "cls or sep is not [token, id]", (csn_str){0});
    }
    return add_id(p, is_before, id, err);
}

static caisson_status load_one(csn_postprocessor *p, const csn_jval *v, bool *has_template,
                               caisson_error *err) {
    csn_str type;
    CSN_TRY(csn_tok_type(v, "post_processor", &type, err));
    if (csn_str_is(type, "Sequence")) {
        const csn_jval *list = csn_jval_get(v, "processors");
        if (csn_jval_kind(list) != CSN_JSON_ARRAY) {
            return fail_post(err, CAISSON_E_PARSE, "processors is not an array", (csn_str){0});
        }
        for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
            CSN_TRY(load_one(p, it.value, has_template, err));
        }
        return CAISSON_OK;
    }
    if (csn_str_is(type, "ByteLevel")) { /* trims offsets; ids stay */
        return CAISSON_OK;
    }
    if (*has_template) {
        return fail_post(err, CAISSON_E_UNSUPPORTED, "two post-processors that add tokens", type);
    }
    *has_template = true;
    if (csn_str_is(type, "TemplateProcessing")) {
        return load_template(p, v, err);
    }
    if (csn_str_is(type, "BertProcessing") || csn_str_is(type, "RobertaProcessing")) {
        CSN_TRY(load_pair(p, true, csn_jval_get(v, "cls"), err));
        return load_pair(p, false, csn_jval_get(v, "sep"), err);
    }
    return fail_post(err, CAISSON_E_UNSUPPORTED, "post-processor is not supported", type);
}

caisson_status csn_postprocessor_load(csn_postprocessor *p, csn_arena *arena, const csn_jval *v,
                                      caisson_error *err) {
    csn_jkind kind = csn_jval_kind(v);
    CSN_TRY(CSN_ARENA_NEW(arena, MAX_AROUND, &p->before, err));
    CSN_TRY(CSN_ARENA_NEW(arena, MAX_AROUND, &p->after, err));
    if (kind == CSN_JSON_ABSENT || kind == CSN_JSON_NULL) {
        return CAISSON_OK;
    }
    bool has_template = false;
    return load_one(p, v, &has_template, err);
}
