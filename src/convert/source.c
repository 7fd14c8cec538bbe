/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises a source by its content and opens it. */
#include "convert/source.h"

#include "base/alloc.h"
#include "convert/source_warp.h"

enum { MAX_EOS = 4096 };

void csn_source_tell_template(csn_str name, const csn_log *log) {
    CSN_WARN(log,
             "the chat template named %.*s is left out: every conversation gets the default one",
             CSN_STR_ARGS(name));
}

caisson_status csn_source_add_eos(csn_source *s, int64_t id, caisson_error *err) {
    if (id < 0) {
        return CAISSON_OK;
    }
    if (id >= s->arch.vocab_size) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("eos_token_id"),
                        .what = "token id outside the vocabulary",
                        CSN_VALUES(s->arch.vocab_size, (uint64_t)id));
    }
    if (s->eos_token_ids == NULL) {
        CSN_TRY(CSN_ARENA_NEW(&s->arena, MAX_EOS, &s->eos_token_ids, err));
    }
    for (uint32_t i = 0; i < s->n_eos; i++) {
        if (s->eos_token_ids[i] == id) {
            return CAISSON_OK;
        }
    }
    if (s->n_eos == MAX_EOS) {
        return CSN_FAIL(err, CAISSON_E_LIMIT, .tensor = CSN_STR("eos_token_id"),
                        .what = "too many end-of-sequence tokens",
                        CSN_VALUES(MAX_EOS, MAX_EOS + 1));
    }
    s->eos_token_ids[s->n_eos++] = (int32_t)id;
    return CAISSON_OK;
}

/* The first bytes of a file; shorter files are padded with zeros. */
static caisson_status peek(csn_fs *fs, const char *path, uint8_t head[9], caisson_error *err) {
    csn_file *f;
    uint64_t size = 0;
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_READ, &f, err));
    caisson_status status = csn_file_size(f, &size, err);
    memset(head, 0, 9);
    if (status == CAISSON_OK) {
        status = csn_file_read_at(f, 0, head, size < 9 ? (size_t)size : 9, err);
    }
    csn_file_close(f);
    return status;
}

static caisson_status open_file(csn_source *s, csn_fs *fs, const char *path, const csn_log *log,
                                caisson_error *err) {
    uint8_t head[9];
    CSN_TRY(peek(fs, path, head, err));
    if (memcmp(head, "GGUF", 4) == 0) {
        return csn_source_read_gguf(s, fs, path, log, err);
    }
    if (memcmp(head, "CMF\x01", 4) == 0) {
        return csn_source_read_cmf(s, fs, path, err);
    }
    csn_str p = csn_str_from(path);
    bool is_weights = head[8] == '{' && csn_str_ends(p, CSN_STR(".safetensors"));
    bool is_config = head[0] == '{' && csn_str_ends(p, CSN_STR("config.json"));
    if (!is_weights && !is_config) {
        return CSN_FAIL(
            err, CAISSON_E_MAGIC, .file = path,
            .what = "neither a GGUF nor a .cmf file nor part of a Hugging Face or WARP directory");
    }
    csn_buf dir = CSN_BUF_INIT(1 << 16);
    const char *slash = strrchr(path, '/');
    caisson_status status =
        slash == NULL ? csn_buf_str(&dir, CSN_STR("."), err)
                      : csn_buf_append(&dir, path, (size_t)(slash - path) + (slash == path), err);
    if (status == CAISSON_OK) {
        status = csn_source_read_hf(s, fs, dir.ptr, log, err);
    }
    csn_buf_free(&dir);
    return status;
}

caisson_status csn_source_open(csn_fs *fs, const char *path, const csn_log *log, csn_source **ret,
                               caisson_error *err) {
    csn_source *s;
    CSN_TRY(CSN_NEW(1, &s, err));
    s->bos_token_id = -1;
    s->pad_token_id = -1;
    csn_arch_init(&s->arch);
    caisson_status status = csn_warp_is(fs, path) ? csn_source_read_warp(s, fs, path, log, err)
                            : fs->ops->is_dir(fs, path) ? csn_source_read_hf(s, fs, path, log, err)
                                                        : open_file(s, fs, path, log, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_source_close(s);
        return status;
    }
    *ret = s;
    return CAISSON_OK;
}

csn_str csn_source_last_name(const char *path) {
    csn_str s = csn_str_from(path);
    while (s.len > 1 && s.ptr[s.len - 1] == '/') {
        s.len--;
    }
    for (size_t i = s.len; i-- > 0;) {
        if (s.ptr[i] == '/') {
            return csn_str_make(s.ptr + i + 1, s.len - i - 1);
        }
    }
    return s;
}

void csn_source_close(csn_source *s) {
    if (s == NULL) {
        return;
    }
    csn_gguf_close(s->gguf);
    csn_safetensors_close(s->weights);
    csn_cmf_close(s->cmf);
    csn_warp_close(s->warp);
    if (s->is_synth && s->dir != NULL) {
        csn_free(s->dir->tensors);
    }
    csn_buf_free(&s->tokenizer);
    csn_buf_free(&s->masks);
    csn_json_free(s->config);
    csn_arena_done(&s->arena);
    csn_free(s);
}
