/* SPDX-License-Identifier: Apache-2.0 */
/* What the files beside the trunk say about conversations (warp facts 7): special tokens, which of
 * them begin and end a text, and chat.json, which becomes a chat template: what it puts around a
 * turn are literals, which may form control tokens; what a message says may not. */
#include "format/warp/warp_internal.h"

#include "base/json_fields.h"
#include "caisson/limits.h"

enum { MAX_SPECIALS_BYTES = 64 << 20, MAX_CHAT_BYTES = 1 << 20, EOS_AFTER_BOS = 2 };

/* The parsed file, NULL when there is none. */
static caisson_status read_json(csn_warp *w, const char *name, uint64_t max, csn_json **ret,
                                const char **ret_path, caisson_error *err) {
    csn_buf text = {0};
    *ret = NULL;
    CSN_TRY(csn_warp_path(w, csn_str_from(name), ret_path, err));
    if (!w->fs->ops->exists(w->fs, *ret_path)) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_fs_read_all(w->fs, *ret_path, max, &text, err));
    caisson_status status = csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, ret, err);
    csn_buf_free(&text);
    if (status != CAISSON_OK) {
        csn_error_file(err, *ret_path);
    }
    return status;
}

/* ---- specials.json ---- */

static const csn_jfield special_fields[] = {
    CSN_JFIELD(csn_warp_special, id, "id", CSN_JT_U32, CSN_JF_REQUIRED),
    CSN_JFIELD(csn_warp_special, text, "text", CSN_JT_STR, CSN_JF_REQUIRED),
};

static caisson_status keep_specials(csn_warp *w, const csn_jval *list, caisson_error *err) {
    size_t n = csn_jval_len(list);
    if (csn_jval_kind(list) != CSN_JSON_ARRAY || n > CAISSON_MAX_TOKENS) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .what = "not a list of special tokens");
    }
    CSN_TRY(CSN_ARENA_NEW(&w->arena, n + 1, &w->specials, err));
    for (csn_jiter it = csn_jval_iter(list); csn_jiter_next(&it);) {
        csn_warp_special *s = &w->specials[w->n_specials];
        CSN_TRY(csn_jfields_read(it.value, special_fields, CSN_N_FIELDS(special_fields), "", s,
                                 NULL, err));
        if (s->text.len == 0 || s->id >= w->arch.vocab_size) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = s->text,
                            .what = "a special token is empty, or its id is no row of the model",
                            CSN_VALUES(w->arch.vocab_size - 1, s->id));
        }
        CSN_TRY(csn_arena_str(&w->arena, s->text, &s->text, err));
        w->n_specials++;
    }
    return CAISSON_OK;
}

static caisson_status read_specials(csn_warp *w, caisson_error *err) {
    csn_json *doc;
    const char *path;
    CSN_TRY(read_json(w, "specials.json", MAX_SPECIALS_BYTES, &doc, &path, err));
    if (doc == NULL) {
        return CAISSON_OK;
    }
    caisson_status status = keep_specials(w, csn_json_root(doc), err);
    csn_json_free(doc);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_error_section(err, "specials");
    }
    return status;
}

static const csn_warp_special *find_special(const csn_warp *w, csn_str text) {
    for (uint32_t i = 0; i < w->n_specials; i++) {
        if (csn_str_eq(w->specials[i].text, text)) {
            return &w->specials[i];
        }
    }
    return NULL;
}

/* ---- chat.json ---- */

enum { PREFIX, SUFFIX };
struct turn {
    const char *role;
    csn_str text[2];
    bool present;
};
struct chat {
    struct turn turns[3];
    csn_str open;
};
enum { ASSISTANT = 2 };

static caisson_status chat_fail(caisson_error *err, const char *at, const char *what) {
    return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(at), .what = what);
}

static caisson_status read_turn(const csn_jval *object, struct turn *t, caisson_error *err) {
    const csn_jval *pair = csn_jval_get(object, t->role);
    if (pair == NULL) {
        return CAISSON_OK;
    }
    csn_jiter it = csn_jval_iter(pair);
    for (int k = PREFIX; k <= SUFFIX; k++) {
        if (!csn_jiter_next(&it) || !csn_jval_str(it.value, &t->text[k])) {
            return chat_fail(err, t->role, "not a list of two strings");
        }
    }
    t->present = true;
    return csn_jiter_next(&it) ? chat_fail(err, t->role, "not a list of two strings") : CAISSON_OK;
}

/* A marker "<|...|>" must be a token, or turns would be told apart by text that anybody can write.
 */
static caisson_status check_markers(const csn_warp *w, const char *at, csn_str s,
                                    caisson_error *err) {
    for (size_t i = csn_str_find(s, CSN_STR("<|"), 0); i != SIZE_MAX;
         i = csn_str_find(s, CSN_STR("<|"), i + 2)) {
        size_t end = csn_str_find(s, CSN_STR("|>"), i);
        if (end != SIZE_MAX && find_special(w, csn_str_make(s.ptr + i, end + 2 - i)) == NULL) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(at),
                            .what = "a marker is no special token",
                            .got = csn_str_make(s.ptr + i, end + 2 - i));
        }
    }
    return CAISSON_OK;
}

static caisson_status read_chat(const csn_warp *w, const csn_jval *object, struct chat *c,
                                caisson_error *err) {
    if (csn_jval_kind(object) != CSN_JSON_OBJECT) {
        return chat_fail(err, "", "not a JSON object");
    }
    for (int i = 0; i < 3; i++) {
        struct turn *t = &c->turns[i];
        CSN_TRY(read_turn(object, t, err));
        CSN_TRY(check_markers(w, t->role, t->text[PREFIX], err));
        CSN_TRY(check_markers(w, t->role, t->text[SUFFIX], err));
    }
    if (!c->turns[1].present) {
        return chat_fail(err, "user", "a conversation without turns of the user");
    }
    if (!csn_jval_str(csn_jval_get(object, "open"), &c->open)) {
        return chat_fail(err, "open", "not a string");
    }
    return check_markers(w, "open", c->open, err);
}

/* {{ 'text' }} */
static caisson_status put_literal(csn_buf *out, csn_str s, caisson_error *err) {
    CSN_TRY(csn_buf_str(out, CSN_STR("{{ '"), err));
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '\n' || c == '\r') { /* ends of lines in a template's source are changed */
            CSN_TRY(csn_buf_str(out, c == '\n' ? CSN_STR("\\n") : CSN_STR("\\r"), err));
        } else {
            CSN_TRY(csn_buf_str(out, c == '\'' || c == '\\' ? CSN_STR("\\") : CSN_STR(""), err));
            CSN_TRY(csn_buf_char(out, c, err));
        }
    }
    return csn_buf_str(out, CSN_STR("' }}"), err);
}

static caisson_status put_template(csn_buf *out, const struct chat *c, caisson_error *err) {
    CSN_TRY(csn_buf_str(out, CSN_STR("{%- for message in messages -%}"), err));
    const char *test = "if";
    for (int i = 0; i < 3; i++) {
        const struct turn *t = &c->turns[i];
        if (t->present) {
            CSN_TRY(
                csn_buf_printf(out, err, "\n{%%- %s message.role == '%s' -%%}\n", test, t->role));
            CSN_TRY(put_literal(out, t->text[PREFIX], err));
            CSN_TRY(csn_buf_str(out, CSN_STR("{{ message.content }}"), err));
            CSN_TRY(put_literal(out, t->text[SUFFIX], err));
            test = "elif";
        }
    }
    CSN_TRY(csn_buf_str(out,
                        CSN_STR("\n{%- else -%}\n{{ raise_exception('chat.json has no turn of the "
                                "role ' + message.role) }}\n{%- endif -%}\n{%- endfor -%}\n"
                                "{%- if add_generation_prompt -%}\n"),
                        err));
    CSN_TRY(put_literal(out, c->open, err));
    return csn_buf_str(out, CSN_STR("\n{%- endif -%}\n"), err);
}

static caisson_status add_eos(csn_warp *w, uint32_t id, caisson_error *err) {
    csn_chat_bundle *chat = &w->chat;
    for (uint32_t i = 0; i < chat->n_eos; i++) {
        if (chat->eos_token_ids[i] == (int32_t)id) {
            return CAISSON_OK;
        }
    }
    int32_t *ids;
    CSN_TRY(CSN_ARENA_NEW(&w->arena, chat->n_eos + 1, &ids, err));
    if (chat->n_eos > 0) {
        memcpy(ids, chat->eos_token_ids, chat->n_eos * sizeof(*ids));
    }
    ids[chat->n_eos++] = (int32_t)id;
    chat->eos_token_ids = ids;
    return CAISSON_OK;
}

/* The token that an answer ends with ends the answer. */
static caisson_status add_closing_eos(csn_warp *w, csn_str suffix, caisson_error *err) {
    for (uint32_t i = 0; i < w->n_specials; i++) {
        if (csn_str_ends(suffix, w->specials[i].text)) {
            CSN_TRY(add_eos(w, w->specials[i].id, err));
        }
    }
    return CAISSON_OK;
}

static caisson_status use_chat(csn_warp *w, const csn_jval *object, caisson_error *err) {
    struct chat c = {.turns = {{.role = "system"}, {.role = "user"}, {.role = "assistant"}}};
    csn_buf out = CSN_BUF_INIT(4 * MAX_CHAT_BYTES);
    CSN_TRY(read_chat(w, object, &c, err));
    caisson_status status = put_template(&out, &c, err);
    if (status == CAISSON_OK) {
        status = csn_arena_str(&w->arena, csn_buf_view(&out), &w->chat.chat_template, err);
    }
    csn_buf_free(&out);
    return status == CAISSON_OK ? add_closing_eos(w, c.turns[ASSISTANT].text[SUFFIX], err) : status;
}

/* Without a chat.json the release's own template counts, which the converter puts beside it. */
static caisson_status read_template(csn_warp *w, caisson_error *err) {
    const char *path;
    csn_buf text = {0};
    CSN_TRY(csn_warp_path(w, CSN_STR("chat_template.jinja"), &path, err));
    if (!w->fs->ops->exists(w->fs, path)) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_fs_read_all(w->fs, path, MAX_CHAT_BYTES, &text, err));
    caisson_status status =
        csn_arena_str(&w->arena, csn_buf_view(&text), &w->chat.chat_template, err);
    csn_buf_free(&text);
    return status;
}

static caisson_status read_chat_file(csn_warp *w, caisson_error *err) {
    csn_json *doc;
    const char *path;
    CSN_TRY(read_json(w, "chat.json", MAX_CHAT_BYTES, &doc, &path, err));
    if (doc == NULL) {
        return read_template(w, err);
    }
    caisson_status status = use_chat(w, csn_json_root(doc), err);
    csn_json_free(doc);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_error_section(err, "chat");
    }
    return status;
}

/* By position where nothing names them: behind the ranks come BOS, EOS, end of message. */
static caisson_status place_specials(csn_warp *w, caisson_error *err) {
    uint32_t n;
    CSN_TRY(csn_warp_count_ranks(w, &n, err));
    csn_chat_bundle *chat = &w->chat;
    if (n > 0 && n < w->arch.vocab_size) {
        chat->bos_token_id = (int32_t)n;
    }
    if (n > 0 && chat->n_eos == 0 && n + EOS_AFTER_BOS < w->arch.vocab_size) {
        CSN_TRY(add_eos(w, n + EOS_AFTER_BOS, err));
    }
    return CAISSON_OK;
}

caisson_status csn_warp_read_chat(csn_warp *w, caisson_error *err) {
    w->chat.present = true;
    w->chat.pad_token_id = -1;
    CSN_TRY(read_specials(w, err));
    CSN_TRY(place_specials(w, err));
    return read_chat_file(w, err);
}
