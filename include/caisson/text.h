/* SPDX-License-Identifier: Apache-2.0 */
/* Text to tokens and back, and chat templates.
 *
 * All calls take a model that was opened without no_text, and may run on any thread. Without a
 * tokenizer in the file or beside it they fail with CAISSON_E_UNSUPPORTED.
 */
#ifndef CAISSON_TEXT_H
#define CAISSON_TEXT_H

#include "caisson/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct caisson_text {
    char *ptr; /* n bytes of UTF-8 and a NUL behind them; NULL before the first use */
    size_t n;
} caisson_text;
CAISSON_API void caisson_text_free(caisson_text *text); /* frees ptr; text becomes empty */

typedef struct caisson_ids {
    int32_t *id; /* [n]; NULL before the first use */
    size_t n;
} caisson_ids;
CAISSON_API void caisson_ids_free(caisson_ids *ids); /* frees id; ids becomes empty */

enum {
    CAISSON_TOKENIZE_ADD_SPECIAL = 1,   /* add what the tokenizer adds by itself (BOS, EOS) */
    CAISSON_TOKENIZE_PARSE_SPECIAL = 2, /* text that spells a special token becomes that token */
    CAISSON_TOKENIZE_PROMPT = 4         /* a raw prompt: special tokens parsed, exactly one BOS if
                                           the tokenizer has one, never an EOS */
};

/* Without flags text is plain text: nothing in it can become a control token. Bytes that are not
 * UTF-8 count as U+FFFD. *ret is the caller's (caisson_ids_free). Errors: CAISSON_E_ARG (more than
 * 1 GiB of text, another bit in flags), _LIMIT, _NOMEM. */
CAISSON_API caisson_status caisson_model_tokenize(const caisson_model *model, const char *text,
                                                  size_t n, unsigned flags, caisson_ids *ret,
                                                  caisson_error *err);

/* skip_special: special tokens give no text. *ret is the caller's (caisson_text_free). Errors:
 * CAISSON_E_ARG (an id outside the vocabulary), _LIMIT (more than 1 GiB), _NOMEM. */
CAISSON_API caisson_status caisson_model_detokenize(const caisson_model *model, const int32_t *ids,
                                                    size_t n, bool skip_special, caisson_text *ret,
                                                    caisson_error *err);

/* Detokenising a stream: what feed and flush give, concatenated, is the text of all ids, and no
 * piece ends inside a code point. *ret_ptr is good until the next call on the stream. The model
 * outlives the stream. Errors: CAISSON_E_ARG (a negative id), _LIMIT, _NOMEM. */
typedef struct caisson_stream caisson_stream;
CAISSON_API caisson_status caisson_stream_new(const caisson_model *model, bool skip_special,
                                              caisson_stream **ret, caisson_error *err);
CAISSON_API caisson_status caisson_stream_feed(caisson_stream *stream, int32_t id,
                                               const char **ret_ptr, size_t *ret_n,
                                               caisson_error *err);
/* What is held back, when no more ids come. */
CAISSON_API caisson_status caisson_stream_flush(caisson_stream *stream, const char **ret_ptr,
                                                size_t *ret_n, caisson_error *err);
CAISSON_API void caisson_stream_free(caisson_stream *stream); /* NULL is fine */

/* The token as the vocabulary spells it (not NUL-terminated), good until the model is closed.
 * False for an id that names no token, or without a tokenizer. */
CAISSON_API bool caisson_model_token(const caisson_model *model, int32_t id, const char **ret_ptr,
                                     size_t *ret_n);
CAISSON_API bool caisson_model_has_tokenizer(const caisson_model *model);
/* False: the file has no chat template, ChatML is used instead. */
CAISSON_API bool caisson_model_has_template(const caisson_model *model);
/* The token that begins a text, or -1. */
CAISSON_API int32_t caisson_model_bos(const caisson_model *model);
/* True for every token that ends an answer (all eos ids of the file; <|im_end|> with ChatML). */
CAISSON_API bool caisson_model_is_eos(const caisson_model *model, int32_t id);

typedef struct caisson_message {
    const char *role;    /* "system", "user", "assistant", "tool" */
    const char *content; /* NUL-terminated UTF-8 */
} caisson_message;

typedef struct caisson_chat {
    size_t struct_size;              /* sizeof(caisson_chat) */
    const caisson_message *messages; /* [n_messages]; ignored when json is given */
    size_t n_messages;
    bool no_generation_prompt; /* do not open the assistant's turn at the end */
    /* Instead of messages, JSON: a list of messages, or an object whose members are the
     * template's variables (messages, tools, documents, add_generation_prompt (default true), now,
     * ...). They reach the template as transformers hands them on: `tools` and `documents` are none
     * when absent, a message's null members are left out. strftime_now shows the host's local time;
     * `now`, a number of seconds since 1970 (shown in UTC) or text "YYYY-MM-DD[ HH:MM:SS]", fixes
     * it. */
    const char *json;
    size_t json_n;
} caisson_chat;

/* The text that the template makes of a chat; *ret is the caller's. Errors: CAISSON_E_TEMPLATE
 * (raise_exception's words in err->what, or a fault with its line), _PARSE (json), _LIMIT, _ARG. */
CAISSON_API caisson_status caisson_model_render(const caisson_model *model,
                                                const caisson_chat *chat, caisson_text *ret,
                                                caisson_error *err);

/* Renders and tokenises in one step. Only characters that the template wrote can form control
 * tokens: a message that spells one stays plain text. That is why this is not the same as
 * caisson_model_tokenize of the rendered text. Exactly one BOS. *ret is the caller's. Errors: those
 * of caisson_model_render and caisson_model_tokenize. */
CAISSON_API caisson_status caisson_model_encode_chat(const caisson_model *model,
                                                     const caisson_chat *chat, caisson_ids *ret,
                                                     caisson_error *err);

#ifdef __cplusplus
}
#endif
#endif
