/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a model: container, store, plan, tokenizer, chat template, in this order, so that the
 * cheapest check refuses first. */
#include "api_internal.h"

#include "base/alloc.h"
#include "base/cpu.h"

static const char im_start[] = "<|im_start|>";
static const char im_end[] = "<|im_end|>";

/* ChatML, for files without a template. The two markers are variables, so that a tokenizer without
 * them gets none. */
static const char chatml[] =
    "{%- for message in messages -%}\n"
    "{{ im_start + message.role + '\\n' }}{{ message.content }}{{ im_end + '\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ im_start + 'assistant\\n' }}{%- endif -%}";

typedef struct log_bridge {
    caisson_log_fn fn;
    void *ctx;
} log_bridge;

static void tell(const log_bridge *log, const char *line) {
    if (log->fn != NULL) {
        log->fn(log->ctx, CAISSON_LOG_WARN, line);
    }
}

/* The bytes of tokenizer.json: the section (of WARP made from its rank file), else the file beside
 * the model; empty = neither. */
static caisson_status read_tokenizer(caisson_model *m, bool only_signed, const log_bridge *log,
                                     csn_buf *ret, caisson_error *err) {
    if (m->files.warp != NULL) {
        return csn_warp_read_tokenizer(m->files.warp, ret, err);
    }
    CSN_TRY(csn_cmf_read_section(m->files.cmf, CSN_CMF_VOCAB, ret, err));
    if (ret->len > 0) {
        return CAISSON_OK;
    }
    csn_buf path = CSN_BUF_INIT(1 << 16);
    const char *slash = strrchr(m->path, '/');
    size_t n_dir = slash != NULL ? (size_t)(slash - m->path) + 1 : 0;
    caisson_status status = csn_buf_append(&path, m->path, n_dir, err);
    if (status == CAISSON_OK) {
        status = csn_buf_str(&path, CSN_STR("tokenizer.json"), err);
    }
    csn_fs *fs = csn_fs_os();
    if (status == CAISSON_OK && fs->ops->exists(fs, path.ptr) && only_signed) {
        status = CSN_FAIL(err, CAISSON_E_SIGNATURE, .file = path.ptr, .section = "vocab",
                          .what = "the model's tokenizer lies beside it, where no signature covers "
                                  "it");
    } else if (status == CAISSON_OK && fs->ops->exists(fs, path.ptr)) {
        csn_buf_free(ret);
        tell(log, "the file has no tokenizer section: using the tokenizer.json beside it");
        status = csn_fs_read_all(fs, path.ptr, CAISSON_MAX_TOKENIZER_BYTES, ret, err);
    }
    csn_buf_free(&path);
    return status;
}

/* A template variable whose text is a token. Ids that name no token are left out. */
static void trust_token(caisson_model *m, const char *name, int32_t id) {
    csn_str text;
    if (id >= 0 && csn_tokenizer_token(m->tokenizer, id, &text)) {
        m->trusted[m->n_trusted][0] = csn_str_from(name);
        m->trusted[m->n_trusted][1] = text;
        m->n_trusted++;
    }
}

/* A file that does not say what the names stand for (the format's reference writes ids alone) has
 * the first of its eos ids as eos_token. */
static void trust_special_tokens(caisson_model *m) {
    const csn_chat_bundle *chat = m->chat;
    if (!chat->has_special_tokens) {
        bool has_bos = chat->bos_token_id >= 0;
        trust_token(m, "bos_token", has_bos ? chat->bos_token_id : csn_tokenizer_bos(m->tokenizer));
        trust_token(m, "eos_token", chat->n_eos > 0 ? chat->eos_token_ids[0] : -1);
        trust_token(m, "pad_token", chat->pad_token_id);
        return;
    }
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
        if (chat->special_tokens[i].len > 0) {
            m->trusted[m->n_trusted][0] = csn_str_from(csn_cmf_special_tokens[i]);
            m->trusted[m->n_trusted][1] = chat->special_tokens[i];
            m->n_trusted++;
        }
    }
}

static void trust_marker(caisson_model *m, const char *name, const char *marker) {
    int32_t id;
    csn_str text = csn_str_from(marker);
    m->trusted[m->n_trusted][0] = csn_str_from(name);
    m->trusted[m->n_trusted][1] = csn_tokenizer_id(m->tokenizer, text, &id) ? text : CSN_STR("");
    m->n_trusted++;
}

static caisson_status add_eos_named(caisson_model *m, const char *name, caisson_error *err) {
    int32_t id;
    if (csn_tokenizer_id(m->tokenizer, csn_str_from(name), &id) &&
        csn_tokenizer_is_special(m->tokenizer, id)) {
        return csn_ids_push(&m->eos, id, err);
    }
    return CAISSON_OK;
}

/* All ids of the chat bundle; a file that names none: the usual spellings (facts 7.3). */
static caisson_status find_eos(caisson_model *m, caisson_error *err) {
    const csn_chat_bundle *chat = m->chat;
    for (uint32_t i = 0; i < chat->n_eos; i++) {
        CSN_TRY(csn_ids_push(&m->eos, chat->eos_token_ids[i], err));
    }
    if (chat->n_eos == 0) {
        static const char *const usual[] = {"<|endoftext|>", "</s>", "[EOS]", "<eos>"};
        for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
            CSN_TRY(add_eos_named(m, usual[i], err));
        }
    }
    if (chat->n_eos == 0 || !m->has_template) {
        CSN_TRY(add_eos_named(m, im_end, err));
    }
    return CAISSON_OK;
}

static caisson_status open_text(caisson_model *m, const caisson_open_options *o,
                                const log_bridge *log, caisson_error *err) {
    bool no_chat = o->no_chat;
    const csn_chat_bundle *chat = m->chat;
    m->has_template = chat->present && chat->chat_template.len > 0;
    csn_buf json = CSN_BUF_INIT(CAISSON_MAX_TOKENIZER_BYTES);
    caisson_status status = read_tokenizer(m, o->require_signature != NULL, log, &json, err);
    if (status != CAISSON_OK || json.len == 0) {
        csn_buf_free(&json);
        if (status == CAISSON_OK) {
            tell(log, "the file has no tokenizer and no tokenizer.json lies beside it");
        }
        return status;
    }
    status = csn_tokenizer_load(csn_buf_view(&json), &m->tokenizer, err);
    csn_buf_free(&json);
    if (status != CAISSON_OK) {
        csn_error_section(err, "vocab");
        return status;
    }
    trust_special_tokens(m);
    if (!m->has_template && !no_chat) {
        tell(log, "the file has no chat template: ChatML is used");
        trust_marker(m, "im_start", im_start);
        trust_marker(m, "im_end", im_end);
    }
    CSN_TRY(find_eos(m, err));
    if (no_chat) {
        return CAISSON_OK;
    }
    csn_str source =
        m->has_template ? chat->chat_template : csn_str_make(chatml, sizeof(chatml) - 1);
    return csn_template_compile(source, &m->tmpl, err);
}

static caisson_status open_parts(caisson_model *m, const caisson_open_options *o,
                                 csn_api_signed *files, caisson_error *err) {
    log_bridge log = {o->on_log, o->log_ctx};
    CSN_TRY(csn_api_open_container(m->path, o, &m->files, files, err));
    const csn_warp *w = m->files.warp;
    m->arch = w != NULL ? &w->arch : &m->files.cmf->arch;
    m->chat = w != NULL ? &w->chat : &m->files.cmf->chat;
    bool is_signed;
    CSN_TRY(csn_signature_exists(csn_fs_os(), m->path, &is_signed, err));
    if (is_signed && o->require_signature == NULL) {
        tell(&log, "a signature lies beside the file and was not checked");
    }
    if (!o->text_only) {
        CSN_TRY(csn_api_store(&m->files, o, &m->store, err));
        csn_memplan_share share = {.n_ubatch = UINT32_MAX, .mask_bytes = UINT64_MAX};
        CSN_TRY(csn_api_stream(m->store, o, &share, err));
        csn_progress progress = {o->on_progress, o->progress_ctx};
        csn_store_set_progress(m->store, &progress);
        caisson_status status = csn_model_new(m->store, &m->model, err);
        csn_store_set_progress(m->store, NULL);
        CSN_TRY(status);
        csn_model_set_max_ubatch(m->model, share.n_ubatch);
        csn_model_set_max_packed(m->model, share.mask_bytes);
        if (!csn_cpu_has_fma()) {
            tell(&log,
                 "this CPU has no fused multiply-add: f32 arithmetic is worked out in software "
                 "and slow; the results are the same");
        }
    }
    if (!o->no_text) {
        CSN_TRY(open_text(m, o, &log, err));
    }
    return csn_api_still_signed(files, err);
}

caisson_status caisson_model_open(const char *path, const caisson_open_options *options,
                                  caisson_model **ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(path != NULL && ret != NULL, err, "path and ret must not be NULL");
    caisson_open_options o;
    CSN_TRY(csn_api_options(options, sizeof(o), &o, err));
    caisson_model *m;
    CSN_TRY(CSN_NEW(1, &m, err));
    csn_str copy;
    caisson_status status = csn_arena_str(&m->arena, csn_str_from(path), &copy, err);
    if (status == CAISSON_OK) {
        m->path = (char *)copy.ptr;
        csn_api_signed files = {0};
        status = open_parts(m, &o, &files, err);
        csn_api_signed_done(&files);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        caisson_model_close(m);
        return status;
    }
    *ret = m;
    return CAISSON_OK;
}

void caisson_model_close(caisson_model *m) {
    if (m == NULL) {
        return;
    }
    csn_template_free(m->tmpl);
    csn_tokenizer_free(m->tokenizer);
    csn_ids_free(&m->eos);
    if (m->model != NULL) { /* each owns the one before it */
        csn_model_free(m->model);
    } else if (m->store != NULL) {
        csn_store_free(m->store);
    } else {
        csn_api_container_close(&m->files);
    }
    csn_arena_done(&m->arena);
    csn_free(m);
}

uint32_t caisson_model_n_vocab(const caisson_model *m) {
    return m->arch->vocab_size;
}

uint32_t caisson_model_n_ctx_train(const caisson_model *m) {
    return m->arch->max_position_embeddings;
}

uint64_t caisson_model_bytes_per_token(const caisson_model *m) {
    return m->model != NULL ? csn_model_bytes_per_token(m->model) : 0;
}

const char *caisson_model_arch_name(const caisson_model *m) {
    return m->arch->arch_name.ptr;
}
