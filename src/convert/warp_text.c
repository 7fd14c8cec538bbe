/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/warp_text.h"

#include "base/base64.h"
#include "caisson/limits.h"

typedef struct writer {
    csn_fs *fs;
    const char *dir;
    csn_warp_writer *w;
    caisson_error *err;
} writer;

/* A file of the source directory; *ret_is_there false: there is none. */
static caisson_status read_file(const writer *t, const char *name, csn_buf *ret,
                                bool *ret_is_there) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    CSN_TRY(csn_buf_printf(&path, t->err, "%s/%s", t->dir, name));
    *ret_is_there = t->fs->ops->exists(t->fs, path.ptr);
    caisson_status status =
        *ret_is_there ? csn_fs_read_all(t->fs, path.ptr, CAISSON_MAX_TOKENIZER_BYTES, ret, t->err)
                      : CAISSON_OK;
    csn_buf_free(&path);
    return status;
}

/* "AA== 0": SentencePiece has files of the same name that are no text. */
static bool is_ranks(csn_str s) {
    uint8_t bytes[96];
    size_t n, space = csn_str_find(s, CSN_STR(" "), 0);
    size_t line = csn_str_find(s, CSN_STR("\n"), 0);
    uint64_t rank;
    return space < 120 && line != SIZE_MAX && space < line &&
           csn_base64_decode(csn_str_make(s.ptr, space), bytes, &n) &&
           csn_str_to_u64(csn_str_make(s.ptr + space + 1, line - space - 1), &rank);
}

/* tokenizer_config.json's added_tokens_decoder {"163584": {"content": "[BOS]", ...}} as WARP's
 * list.
 */
static caisson_status write_specials(const writer *t, const csn_jval *added) {
    csn_buf out = CSN_BUF_INIT(16 << 20);
    csn_jw w = csn_jw_begin(&out, t->err);
    w.pretty = true;
    csn_jw_array(&w);
    for (csn_jiter it = csn_jval_iter(added); csn_jiter_next(&it);) {
        csn_str text;
        uint64_t id;
        if (csn_str_to_u64(it.key, &id) && csn_jval_str(csn_jval_get(it.value, "content"), &text)) {
            csn_jw_object(&w);
            csn_jw_put_u64(&w, "id", id);
            csn_jw_put_str(&w, "text", text);
            csn_jw_object_end(&w);
        }
    }
    csn_jw_array_end(&w);
    caisson_status status = csn_jw_end(&w);
    if (status == CAISSON_OK) {
        status = csn_warp_writer_file(t->w, "specials.json", csn_buf_view(&out), t->err);
    }
    csn_buf_free(&out);
    return status;
}

/* Chats that are known by their special tokens. */
static const struct {
    const char *markers[4]; /* NULL-terminated where there are fewer */
    const char *json;
} chats[] = {
    {{"<|im_user|>", "<|im_system|>", "<|im_assistant|>", "<|im_middle|>"},
     "{\n \"system\": [\"<|im_system|>system<|im_middle|>\", \"<|im_end|>\"],\n"
     " \"user\": [\"<|im_user|>user<|im_middle|>\", \"<|im_end|>\"],\n"
     " \"assistant\": [\"<|im_assistant|>assistant<|im_middle|>\", \"<|im_end|>\"],\n"
     " \"open\": \"<|im_assistant|>assistant<|im_middle|>\"\n}\n"},
    {{"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"},
     "{\n \"system\": [\"<|open|>message role=\\\"system\\\"<|sep|>\", "
     "\"<|close|>message<|sep|><|end_of_msg|>\"],\n"
     " \"user\": [\"<|open|>message role=\\\"user\\\"<|sep|>\", "
     "\"<|close|>message<|sep|><|end_of_msg|>\"],\n"
     " \"assistant\": [\"<|open|>message role=\\\"assistant\\\"<|sep|><|open|>response<|sep|>\", "
     "\"<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>\"],\n"
     " \"open\": \"<|open|>message role=\\\"assistant\\\"<|sep|><|open|>response<|sep|>\"\n}\n"},
};

static bool has_token(const csn_jval *added, const char *text) {
    for (csn_jiter it = csn_jval_iter(added); csn_jiter_next(&it);) {
        csn_str s;
        if (csn_jval_str(csn_jval_get(it.value, "content"), &s) && csn_str_is(s, text)) {
            return true;
        }
    }
    return false;
}

static caisson_status write_chat(const writer *t, const csn_jval *added) {
    for (size_t i = 0; i < sizeof(chats) / sizeof(chats[0]); i++) {
        bool fits = true;
        for (int k = 0; k < 4; k++) {
            fits = fits && has_token(added, chats[i].markers[k]);
        }
        if (fits) {
            return csn_warp_writer_file(t->w, "chat.json", csn_str_from(chats[i].json), t->err);
        }
    }
    return CAISSON_OK;
}

static caisson_status write_added(const writer *t) {
    csn_buf text = {0};
    csn_json *doc = NULL;
    bool is_there;
    CSN_TRY(read_file(t, "tokenizer_config.json", &text, &is_there));
    caisson_status status =
        is_there ? csn_json_parse(csn_buf_view(&text), 0, &doc, t->err) : CAISSON_OK;
    const csn_jval *added =
        doc != NULL ? csn_jval_get(csn_json_root(doc), "added_tokens_decoder") : NULL;
    if (status == CAISSON_OK && added != NULL) {
        status = write_specials(t, added);
    }
    if (status == CAISSON_OK && added != NULL) {
        status = write_chat(t, added);
    }
    csn_json_free(doc);
    csn_buf_free(&text);
    return status;
}

static caisson_status write_ranks(const writer *t, bool *ret_done) {
    static const char *const names[] = {"tokenizer.model", "tiktoken.model"};
    *ret_done = false;
    for (int i = 0; i < 2 && !*ret_done; i++) {
        csn_buf ranks = {0};
        bool is_there;
        CSN_TRY(read_file(t, names[i], &ranks, &is_there));
        caisson_status status = CAISSON_OK;
        if (is_there && is_ranks(csn_buf_view(&ranks))) {
            *ret_done = true;
            status = csn_warp_writer_file(t->w, "tokenizer.model", csn_buf_view(&ranks), t->err);
        }
        csn_buf_free(&ranks);
        CSN_TRY(status);
    }
    return *ret_done ? write_added(t) : CAISSON_OK;
}

caisson_status csn_warp_text_write(csn_fs *fs, const csn_source *s, const char *source_path,
                                   csn_warp_writer *w, const csn_log *log, caisson_error *err) {
    const writer t = {fs, source_path, w, err};
    bool is_done = false;
    if (s->weights != NULL && fs->ops->is_dir(fs, source_path)) {
        CSN_TRY(write_ranks(&t, &is_done));
    }
    if (!is_done && s->tokenizer.len > 0) {
        CSN_TRY(csn_warp_writer_file(w, "tokenizer.json", csn_buf_view(&s->tokenizer), err));
        CSN_INFO(log, "the tokenizer is no list of ranks: it goes along as "
                      "tokenizer.json, which other engines do not read");
    }
    return s->chat_template.len > 0
               ? csn_warp_writer_file(w, "chat_template.jinja", s->chat_template, err)
               : CAISSON_OK;
}
