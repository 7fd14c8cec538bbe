/* SPDX-License-Identifier: Apache-2.0 */
/* A file told as one JSON object (caisson_file_describe). Each part is a function; their order is
 * the order of the keys. */
#include <stdio.h>

#include "base/alloc.h"
#include "inspect_internal.h"

enum { MAX_DESCRIPTION = 256 << 20 };

/* Bits of required_features (facts 1.3). */
static const char *const feature_names[] = {
    "TENSOR_DIR", "BINARY_MASKS", "QUANT_2F",   "DELTA_MASKS",
    "HOT_PACKS",  "LOOP_MASKS",   "SKILL_FILE",
};

static void key_hash(csn_jw *w, const char *name, uint64_t v) {
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, v);
    csn_jw_put_str(w, name, csn_str_from(text));
}

/* Of a sharded model, what each file holds. */
static void put_shards(csn_jw *w, const csn_cmf *c) {
    csn_jw_key(w, CSN_STR("shards"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < c->n_files; i++) {
        const csn_cmf *f = csn_cmf_file_of(c, i);
        csn_jw_object(w);
        csn_jw_put_str(w, "file", csn_str_from(f->file->path));
        csn_jw_put_u64(w, "bytes", f->envelope.file_bytes);
        csn_jw_put_u64(w, "tensors", f->n_own);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
}

static void put_container(csn_jw *w, const csn_cmf *c) {
    const csn_cmf_envelope *e = &c->envelope; /* of shards, the first one's */
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < c->n_files; i++) {
        n_bytes += csn_cmf_file_of(c, i)->envelope.file_bytes;
    }
    csn_jw_key(w, CSN_STR("container"));
    csn_jw_object(w);
    csn_jw_put_str(w, "format", CSN_STR("cmf"));
    csn_jw_put_u64(w, "version", 2);
    csn_jw_put_u64(w, "bytes", n_bytes);
    csn_jw_key(w, CSN_STR("sections"));
    csn_jw_array(w);
    for (int i = 0; i < CSN_CMF_N_SECTIONS; i++) {
        if (e->len[i] > 0) {
            csn_jw_object(w);
            csn_jw_put_str(w, "name", csn_str_from(csn_cmf_section_names[i]));
            csn_jw_put_u64(w, "offset", e->off[i]);
            csn_jw_put_u64(w, "bytes", e->len[i]);
            csn_jw_object_end(w);
        }
    }
    csn_jw_array_end(w);
    key_hash(w, "header_hash", e->header_hash);
    key_hash(w, "directory_hash", e->dir_hash);
    if (c->n_files > 1) {
        put_shards(w, c);
    }
    csn_jw_object_end(w);
}

static void put_features(csn_jw *w, const csn_cmf *c) {
    csn_jw_key(w, CSN_STR("features"));
    csn_jw_array(w);
    for (unsigned i = 0; i < sizeof(feature_names) / sizeof(feature_names[0]); i++) {
        if (c->envelope.required_features >> i & 1) {
            csn_jw_str(w, csn_str_from(feature_names[i]));
        }
    }
    csn_jw_array_end(w);
}

/* Totals of a kind of tensors. */
typedef struct totals {
    uint64_t n, bytes, values;
} totals;

static void add_tensor(totals *t, const csn_tensor *tensor) {
    uint64_t n = 0;
    (void)csn_shape_count(&tensor->shape, &n);
    t->n++;
    t->bytes += tensor->nbytes;
    t->values += n;
}

static totals expert_totals(const caisson_file *f) {
    totals t = {0};
    caisson_tensor_info info;
    for (uint32_t i = 0; f->experts != NULL && csn_api_experts_tensor(f->experts, i, &info); i++) {
        t.n++;
        t.bytes += info.n_bytes;
        t.values += info.n_values;
    }
    return t;
}

static void put_totals(csn_jw *w, const totals *t) {
    csn_jw_put_u64(w, "n", t->n);
    csn_jw_put_u64(w, "bytes", t->bytes);
    csn_jw_put_u64(w, "values", t->values);
}

static void put_dtype(csn_jw *w, const char *name, const totals *t) {
    if (t->n > 0) {
        csn_jw_object(w);
        csn_jw_put_str(w, "dtype", csn_str_from(name));
        put_totals(w, t);
        csn_jw_object_end(w);
    }
}

static void put_tensors(csn_jw *w, const caisson_file *f) {
    const csn_directory *dir = f->dir;
    totals experts = expert_totals(f);
    totals all = experts;
    for (uint32_t i = 0; i < dir->n; i++) {
        add_tensor(&all, &dir->tensors[i]);
    }
    csn_jw_key(w, CSN_STR("tensors"));
    csn_jw_object(w);
    put_totals(w, &all);
    csn_jw_key(w, CSN_STR("by_dtype"));
    csn_jw_array(w);
    for (const csn_dtype *const *d = csn_dtypes; *d != NULL; d++) {
        totals t = {0};
        for (uint32_t i = 0; i < dir->n; i++) {
            if (dir->tensors[i].dtype == *d) {
                add_tensor(&t, &dir->tensors[i]);
            }
        }
        put_dtype(w, (*d)->name, &t);
    }
    if (f->warp != NULL) {
        put_dtype(w, csn_api_experts_dtype(f->warp), &experts);
    }
    csn_jw_array_end(w);
    csn_jw_object_end(w);
}

static void put_chat(csn_jw *w, uint64_t tokenizer_bytes, const csn_chat_bundle *chat) {
    csn_jw_key(w, CSN_STR("tokenizer"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "bytes", tokenizer_bytes);
    csn_jw_object_end(w);
    csn_jw_key(w, CSN_STR("chat"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "template_bytes", chat->chat_template.len);
    csn_jw_key(w, CSN_STR("eos_token_ids"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < chat->n_eos; i++) {
        csn_jw_i64(w, chat->eos_token_ids[i]);
    }
    csn_jw_array_end(w);
    csn_jw_put_id(w, "bos_token_id", chat->bos_token_id);
    csn_jw_put_id(w, "pad_token_id", chat->pad_token_id);
    csn_jw_object_end(w);
}

/* The plan, if the file can run; else why not. What this machine lacks at the moment says nothing
 * about the file. */
static caisson_status put_layers(csn_jw *w, caisson_file *f, caisson_error *err) {
    caisson_error why;
    caisson_status status = CAISSON_OK;
    if (f->model == NULL) {
        status = csn_model_new(f->store, &f->model, &why);
    }
    if (status == CAISSON_E_NOMEM || status == CAISSON_E_IO) {
        *err = why;
        return status;
    }
    csn_jw_put_bool(w, "runs", status == CAISSON_OK);
    if (status != CAISSON_OK) {
        char line[1024];
        why.file[0] = '\0'; /* the reader knows which file */
        csn_jw_put_str(w, "why_not", csn_str_from(caisson_error_format(&why, line, sizeof(line))));
        return CAISSON_OK;
    }
    csn_jw_put_u64(w, "weight_bytes_per_token", csn_model_bytes_per_token(f->model));
    csn_jw_key(w, CSN_STR("layers"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < csn_store_arch(f->store)->n_layers; i++) {
        csn_jw_object(w);
        csn_model_describe_layer(f->model, i, w);
        csn_jw_object_end(w);
    }
    csn_jw_array_end(w);
    return CAISSON_OK;
}

static caisson_status describe_cmf(csn_jw *w, caisson_file *f, caisson_error *err) {
    put_container(w, f->cmf);
    put_features(w, f->cmf);
    csn_jw_put_str(w, "quant_type", f->cmf->quant_type);
    csn_jw_key(w, CSN_STR("arch"));
    csn_arch_write(&f->cmf->arch, w);
    put_tensors(w, f);
    put_chat(w, f->cmf->envelope.len[CSN_CMF_VOCAB], &f->cmf->chat);
    csn_api_put_masks(w, f->cmf);
    csn_api_put_skills(w, f->cmf);
    CSN_TRY(csn_api_put_index(w, f->cmf, err));
    csn_jw_key(w, CSN_STR("provenance"));
    const csn_jval *provenance = csn_jval_get(f->cmf->header, "provenance");
    if (provenance != NULL) {
        csn_jw_value(w, provenance);
    } else {
        csn_jw_null(w);
    }
    return CAISSON_OK;
}

static caisson_status describe_warp(csn_jw *w, const caisson_file *f, caisson_error *err) {
    uint64_t tokenizer_bytes;
    CSN_TRY(csn_api_put_waste(w, f->warp, err));
    CSN_TRY(csn_warp_tokenizer_nbytes(f->warp, &tokenizer_bytes, err));
    csn_jw_put_str(w, "quant_type", csn_str_from(csn_api_experts_dtype(f->warp)));
    csn_jw_key(w, CSN_STR("arch"));
    csn_arch_write(&f->warp->arch, w);
    put_tensors(w, f);
    put_chat(w, tokenizer_bytes, &f->warp->chat);
    csn_jw_put_null(w, "provenance");
    return CAISSON_OK;
}

caisson_status caisson_file_describe(caisson_file *f, caisson_text *ret, caisson_error *err) {
    CSN_API_ERR(err);
    CSN_API_NEED(f != NULL && ret != NULL, err, "file and ret must not be NULL");
    csn_buf out = CSN_BUF_INIT(MAX_DESCRIPTION);
    csn_jw w = csn_jw_begin(&out, err);
    csn_jw_object(&w);
    caisson_status status = f->warp != NULL ? describe_warp(&w, f, err) : describe_cmf(&w, f, err);
    if (status == CAISSON_OK) {
        status = put_layers(&w, f, err);
    }
    csn_jw_object_end(&w);
    if (status == CAISSON_OK) {
        status = csn_jw_end(&w);
    }
    if (status != CAISSON_OK) {
        csn_buf_free(&out);
        return status;
    }
    *ret = csn_api_take_text(&out);
    return CAISSON_OK;
}
