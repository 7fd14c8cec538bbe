/* SPDX-License-Identifier: Apache-2.0 */
/* From messages to the template's variables, to text, to tokens. Whatever form the messages come
 * in, they end as one JSON object, because that is what a chat template is given. */
#include <time.h>

#include "api_internal.h"
#include "base/alloc.h"
#include "base/clock.h"

enum { MAX_CHAT_JSON = 64 << 20 };

static bool is_null(const csn_jval *v) {
    csn_jkind kind = csn_jval_kind(v);
    return kind == CSN_JSON_NULL || kind == CSN_JSON_ABSENT;
}

/* A message as transformers hands it to a template: members that are null are left out, and what
 * the model thought is found under the names `reasoning_content` and `thinking`, whichever of the
 * three in use it came under. */
static void write_message(csn_jw *w, const csn_jval *message) {
    const csn_jval *reasoning = csn_jval_get(message, "reasoning_content");
    const csn_jval *thinking = csn_jval_get(message, "thinking");
    bool has_content = !is_null(reasoning);
    reasoning = has_content          ? reasoning
                : !is_null(thinking) ? thinking
                                     : csn_jval_get(message, "reasoning");
    csn_jw_object(w);
    if (!is_null(reasoning)) {
        csn_jw_key(w, CSN_STR("thinking"));
        csn_jw_value(w, is_null(thinking) ? reasoning : thinking);
    }
    for (csn_jiter it = csn_jval_iter(message); csn_jiter_next(&it);) {
        if (!is_null(it.value) && !csn_str_is(it.key, "thinking")) {
            csn_jw_key(w, it.key);
            csn_jw_value(w, it.value);
        }
    }
    if (!is_null(reasoning) && !has_content) {
        csn_jw_key(w, CSN_STR("reasoning_content"));
        csn_jw_value(w, reasoning);
    }
    csn_jw_object_end(w);
}

static void write_given_messages(csn_jw *w, const csn_jval *messages) {
    csn_jw_array(w);
    for (csn_jiter it = csn_jval_iter(messages); csn_jiter_next(&it);) {
        write_message(w, it.value);
    }
    csn_jw_array_end(w);
}

static void write_messages(csn_jw *w, const caisson_chat *chat) {
    csn_jw_array(w);
    for (size_t i = 0; i < chat->n_messages; i++) {
        csn_jw_object(w);
        csn_jw_put_str(w, "role", csn_str_from(chat->messages[i].role));
        csn_jw_put_str(w, "content", csn_str_from(chat->messages[i].content));
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
}

/* The variables as JSON text: the caller's object, with what transformers always sets filled in. */
static caisson_status write_vars(const caisson_chat *chat, const csn_jval *given, csn_buf *out,
                                 caisson_error *err) {
    csn_jw w = csn_jw_begin(out, err);
    csn_jw_object(&w);
    static const char *const none[] = {"tools", "documents"};
    bool is_object = csn_jval_kind(given) == CSN_JSON_OBJECT;
    bool has_prompt_flag = false;
    if (is_object) {
        for (csn_jiter it = csn_jval_iter(given); csn_jiter_next(&it);) {
            has_prompt_flag |= csn_str_is(it.key, "add_generation_prompt");
            csn_jw_key(&w, it.key);
            if (csn_str_is(it.key, "messages")) {
                write_given_messages(&w, it.value);
            } else {
                csn_jw_value(&w, it.value);
            }
        }
    } else {
        csn_jw_key(&w, CSN_STR("messages"));
        if (given != NULL) {
            write_given_messages(&w, given);
        } else {
            write_messages(&w, chat);
        }
    }
    if (!has_prompt_flag) {
        csn_jw_put_bool(&w, "add_generation_prompt", !chat->no_generation_prompt);
    }
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        if (!is_object || csn_jval_get(given, none[i]) == NULL) {
            csn_jw_put_null(&w, none[i]);
        }
    }
    csn_jw_object_end(&w);
    return csn_jw_end(&w);
}

/* Lists of objects, or null: transformers refuses anything else as well. */
static caisson_status check_list(const csn_jval *v, const char *name, caisson_error *err) {
    bool is_good = is_null(v) || csn_jval_kind(v) == CSN_JSON_ARRAY;
    for (csn_jiter it = csn_jval_iter(v); is_good && csn_jiter_next(&it);) {
        is_good = csn_jval_kind(it.value) == CSN_JSON_OBJECT;
    }
    return is_good ? CAISSON_OK
                   : CSN_FAIL(err, CAISSON_E_PARSE, .section = "chat", .tensor = csn_str_from(name),
                              .what = "not a list of objects");
}

static caisson_status parse_given(const caisson_chat *chat, csn_json **ret, caisson_error *err) {
    caisson_status status =
        csn_json_parse(csn_str_make(chat->json, chat->json_n), CSN_JSON_EXACT, ret, err);
    if (status != CAISSON_OK) {
        csn_error_section(err, "chat");
        return status;
    }
    csn_jkind kind = csn_jval_kind(csn_json_root(*ret));
    const csn_jval *messages = csn_jval_get(csn_json_root(*ret), "messages");
    if (kind == CSN_JSON_ARRAY) {
        status = check_list(csn_json_root(*ret), "messages", err);
    } else if (kind == CSN_JSON_OBJECT && csn_jval_kind(messages) == CSN_JSON_ARRAY) {
        status = check_list(messages, "messages", err);
        if (status == CAISSON_OK) {
            status = check_list(csn_jval_get(csn_json_root(*ret), "tools"), "tools", err);
        }
        if (status == CAISSON_OK) {
            status = check_list(csn_jval_get(csn_json_root(*ret), "documents"), "documents", err);
        }
    } else {
        status =
            CSN_FAIL(err, CAISSON_E_PARSE, .section = "chat",
                     .what = "a chat is a list of messages or an object with a list \"messages\"");
    }
    if (status != CAISSON_OK) {
        csn_json_free(*ret);
        *ret = NULL;
    }
    return status;
}

static caisson_status make_vars(const caisson_chat *chat, csn_json **ret, caisson_error *err) {
    csn_json *given = NULL;
    if (chat->json != NULL) {
        CSN_TRY(parse_given(chat, &given, err));
    }
    csn_buf text = CSN_BUF_INIT(MAX_CHAT_JSON);
    caisson_status status = write_vars(chat, csn_json_root(given), &text, err);
    if (status == CAISSON_OK) {
        status = csn_json_parse(csn_buf_view(&text), 0, ret, err);
    }
    csn_buf_free(&text);
    csn_json_free(given);
    return status;
}

static caisson_status check_chat(const caisson_model *m, const caisson_chat *given,
                                 caisson_chat *ret, caisson_error *err) {
    CSN_TRY(csn_api_options(given, sizeof(*ret), ret, err));
    CSN_API_NEED(ret->json != NULL || ret->messages != NULL || ret->n_messages == 0, err,
                 "messages must not be NULL");
    for (size_t i = 0; ret->json == NULL && i < ret->n_messages; i++) {
        CSN_API_NEED(ret->messages[i].role != NULL && ret->messages[i].content != NULL, err,
                     "role and content of a message must not be NULL");
    }
    if (m->tokenizer == NULL) {
        return csn_api_no_tokenizer(m, err);
    }
    if (m->tmpl == NULL) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = m->path,
                        .what = "the model was opened with no_chat: it cannot render");
    }
    return CAISSON_OK;
}

static caisson_status render(const caisson_model *m, const caisson_chat *given, csn_rendering *ret,
                             caisson_error *err) {
    caisson_chat chat;
    CSN_TRY(check_chat(m, given, &chat, err));
    csn_json *vars;
    int64_t now = (int64_t)time(NULL);
    CSN_TRY(make_vars(&chat, &vars, err));
    csn_template_input in = {
        .vars = csn_json_root(vars),
        .trusted_vars = m->trusted,
        .n_trusted_vars = m->n_trusted,
        .now_unix = now,
        .utc_offset_s = csn_utc_offset_s(now),
    };
    caisson_status status = csn_template_render(m->tmpl, &in, ret, err);
    csn_json_free(vars);
    return status;
}

caisson_status caisson_model_render(const caisson_model *m, const caisson_chat *chat,
                                    caisson_text *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(m != NULL && chat != NULL && ret != NULL, err,
                 "model, chat and ret must not be NULL");
    csn_rendering r = {0};
    CSN_TRY(render(m, chat, &r, err));
    caisson_status status = csn_buf_reserve(&r.text, 1, err); /* an empty text is not NULL */
    if (status == CAISSON_OK) {
        *ret = csn_api_take_text(&r.text);
    }
    csn_rendering_free(&r);
    return status;
}

caisson_status caisson_model_encode_chat(const caisson_model *m, const caisson_chat *chat,
                                         caisson_ids *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(m != NULL && chat != NULL && ret != NULL, err,
                 "model, chat and ret must not be NULL");
    csn_rendering r = {0};
    CSN_TRY(render(m, chat, &r, err));
    csn_ids ids = {0};
    caisson_status status = csn_tokenizer_encode_marked(
        m->tokenizer, csn_buf_view(&r.text), (const uint8_t *)csn_buf_view(&r.trusted).ptr,
        CSN_ENC_SPECIAL_TOKENS, &ids, err);
    csn_rendering_free(&r);
    if (status != CAISSON_OK) {
        csn_ids_free(&ids);
        return status;
    }
    *ret = (caisson_ids){ids.id, ids.n};
    return CAISSON_OK;
}
