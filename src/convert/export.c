/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor by tensor: decoded, encoded in the chosen plain type, written under Hugging Face's name.
 * Skills are no part of a checkpoint; one can be put in the backbone's place.
 *
 * Every file is written under a name of its own, and all take their places when the last one is on
 * the disk: what was there stays until then. An export that fails takes what it wrote with it, and
 * the directory if it made that. One that is killed leaves MARK, which says into how many files it
 * writes: the next export takes their place without asking. */
#include "convert/export.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "convert/arithmetic.h"
#include "convert/hf_config.h"
#include "convert/plan.h"
#include "convert/source.h"
#include "format/safetensors/writer.h"

#define MARK "caisson.export.part"
#define STAGED ".export" /* behind the name of a file that is not in its place yet */
#define INDEX "model.safetensors.index.json"

enum { MAX_PARTS = 3, MAX_MARK = 32 };

typedef struct item {
    csn_str name;              /* in the checkpoint */
    csn_str source[MAX_PARTS]; /* [n_sources] in the file, one above the other */
    uint32_t n_sources;
} item;

typedef struct job {
    csn_store *store;
    const csn_cmf *cmf;
    csn_fs *fs;
    const char *dir;
    const csn_export_options *o;
    csn_pool *pool;
    csn_arena arena;
    item *items;            /* [n] */
    csn_st_tensor *tensors; /* [n] */
    uint32_t n;
    uint32_t *first; /* [n_files + 1] first tensor of each file */
    uint32_t n_files;
    uint64_t n_done, n_total;
    csn_buf encoded; /* of one tensor */
    csn_buf staged;  /* paths of files that are not in their places yet, each with its NUL */
    csn_buf placed;  /* paths of files that are, and were not there before */
    csn_file *mark;  /* MARK, claimed: nobody else exports into the directory */
    bool made_dir;
    bool is_clearing; /* what was there is no model any more */
    caisson_error *err;
} job;

static caisson_status path_of(const job *j, const char *name, csn_buf *ret) {
    *ret = CSN_BUF_INIT(1 << 16);
    return csn_buf_printf(ret, j->err, "%s/%s", j->dir, name);
}

/* The path to write a file under, which goes when the export fails. */
static caisson_status stage(job *j, const char *name, csn_buf *ret) {
    CSN_TRY(path_of(j, name, ret));
    CSN_TRY(csn_buf_str(ret, CSN_STR(STAGED), j->err));
    return csn_buf_append(&j->staged, ret->ptr, ret->len + 1, j->err);
}

/* From now on the file goes when the export fails, unless it was there before. */
static caisson_status note_placed(job *j, const char *path) {
    return j->fs->ops->exists(j->fs, path)
               ? CAISSON_OK
               : csn_buf_append(&j->placed, path, strlen(path) + 1, j->err);
}

static void remove_all(const job *j, const csn_buf *paths) {
    caisson_error ignored;
    for (size_t at = 0; at < paths->len; at += strlen(paths->ptr + at) + 1) {
        if (j->fs->ops->exists(j->fs, paths->ptr + at)) {
            (void)j->fs->ops->remove(j->fs, paths->ptr + at, &ignored);
        }
    }
}

/* All of it, as far as the system lets us. */
static void undo(job *j) {
    caisson_error ignored;
    remove_all(j, &j->staged);
    remove_all(j, &j->placed);
    if (j->made_dir) {
        (void)j->fs->ops->remove(j->fs, j->dir, &ignored);
    }
}

/* ---- what goes where ---- */

/* The name of a backbone tensor as the skill has it, if it has it. */
static caisson_status source_name(job *j, csn_str name, csn_str *ret) {
    const csn_tensor *t = NULL;
    if (j->o->skill.len > 0) {
        CSN_TRY(csn_cmf_skill_tensor(j->cmf, j->o->skill, name, &t, j->err));
    }
    *ret = t != NULL ? t->name : name;
    return CAISSON_OK;
}

/* Matrices that some classes keep as one. */
static const struct fusion {
    const char *parts[MAX_PARTS], *whole;
} fusions[] = {
    {{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
     "self_attn.qkv_proj.weight"},
    {{"mlp.gate_proj.weight", "mlp.up_proj.weight"}, "mlp.gate_up_proj.weight"},
};

/* The fusion that a tensor is part of, or NULL. *ret_prefix: its name up to there. */
static const struct fusion *find_fusion(const job *j, csn_str name, uint32_t *ret_part,
                                        csn_str *ret_prefix) {
    bool fuses = csn_hf_config_is_fused(j->cmf);
    for (size_t i = 0; fuses && i < sizeof(fusions) / sizeof(fusions[0]); i++) {
        for (uint32_t k = 0; k < MAX_PARTS && fusions[i].parts[k] != NULL; k++) {
            csn_str part = csn_str_from(fusions[i].parts[k]);
            if (csn_str_ends(name, part)) {
                *ret_part = k;
                *ret_prefix = csn_str_make(name.ptr, name.len - part.len);
                return &fusions[i];
            }
        }
    }
    return NULL;
}

static caisson_status join(job *j, csn_str prefix, const char *rest, csn_str *ret) {
    csn_buf b = CSN_BUF_INIT(1 << 20);
    caisson_status status = csn_buf_printf(&b, j->err, "%.*s%s", CSN_STR_ARGS(prefix), rest);
    if (status == CAISSON_OK) {
        status = csn_arena_str(&j->arena, csn_buf_view(&b), ret, j->err);
    }
    csn_buf_free(&b);
    return status;
}

/* The parts of a fused matrix: rows under those of the first. */
static caisson_status add_parts(job *j, const struct fusion *f, csn_str prefix, item *to,
                                csn_shape *shape) {
    CSN_TRY(join(j, prefix, f->whole, &to->name));
    for (uint32_t k = 1; k < MAX_PARTS && f->parts[k] != NULL; k++) {
        csn_str name;
        CSN_TRY(join(j, prefix, f->parts[k], &name));
        const csn_tensor *t = csn_directory_find(&j->cmf->dir, name);
        if (t == NULL || t->shape.n_dims != 2 || shape->n_dims != 2 ||
            t->shape.dim[1] != shape->dim[1]) {
            return CSN_FAIL(j->err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                            .what = "not a matrix that fits under the one it is kept with");
        }
        shape->dim[0] += t->shape.dim[0];
        CSN_TRY(source_name(j, t->name, &to->source[to->n_sources++]));
    }
    return CAISSON_OK;
}

static caisson_status list_tensors(job *j) {
    const csn_directory *dir = &j->cmf->dir;
    CSN_TRY(CSN_ARENA_NEW(&j->arena, dir->n, &j->items, j->err));
    CSN_TRY(CSN_ARENA_NEW(&j->arena, dir->n, &j->tensors, j->err));
    for (uint32_t i = 0; i < dir->n; i++) {
        const csn_tensor *t = &dir->tensors[i];
        if (csn_str_starts(t->name, CSN_STR("skill."))) {
            continue;
        }
        uint32_t part = 0;
        csn_str prefix;
        const struct fusion *fusion = find_fusion(j, t->name, &part, &prefix);
        if (part > 0) {
            continue;
        }
        item *to = &j->items[j->n];
        csn_st_tensor *out = &j->tensors[j->n];
        const csn_dtype *dtype =
            csn_convert_stays_f32(t->name) ? csn_dtype_by_name(CSN_STR("f32")) : j->o->dtype;
        csn_shape shape = csn_hf_shape(j->cmf, t);
        CSN_TRY(csn_hf_name(j->cmf, t->name, &j->arena, &to->name, j->err));
        CSN_TRY(source_name(j, t->name, &to->source[to->n_sources++]));
        if (fusion != NULL) {
            CSN_TRY(add_parts(j, fusion, prefix, to, &shape));
        }
        *out = (csn_st_tensor){.name = to->name, .dtype = dtype, .shape = shape};
        CSN_TRY(dtype->nbytes(&shape, &out->nbytes, j->err));
        j->n_total += out->nbytes;
        j->n++;
    }
    return CAISSON_OK;
}

/* Greedy, in order, by the bytes of the tensors, as Hugging Face counts them. */
static caisson_status cut(job *j) {
    uint64_t max = j->o->shard_max_bytes, size = 0;
    CSN_TRY(CSN_ARENA_NEW(&j->arena, (size_t)j->n + 2, &j->first, j->err));
    j->n_files = 1;
    for (uint32_t i = 0; i < j->n; i++) {
        uint64_t n = j->tensors[i].nbytes;
        if (max > 0 && size > 0 && (size > max || n > max - size)) {
            j->first[j->n_files++] = i;
            size = 0;
        }
        size += n;
    }
    j->first[j->n_files] = j->n;
    return CAISSON_OK;
}

enum { FILE_NAME = 64 };
static void file_name(uint32_t i, uint32_t n, const char *ending, char ret[FILE_NAME]) {
    if (n == 1) {
        snprintf(ret, FILE_NAME, "model.safetensors%s", ending);
    } else {
        snprintf(ret, FILE_NAME, "model-%05u-of-%05u.safetensors%s", i + 1, n, ending);
    }
}

/* ---- weights ---- */

typedef struct decoding {
    csn_matrix parts[MAX_PARTS]; /* [n_parts] */
    uint32_t n_parts;
    uint64_t n;
    float *x;
} decoding;

static caisson_status decode(void *ctx, caisson_error *err) {
    const decoding *d = ctx;
    float *at = d->x;
    (void)err;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const csn_matrix *m = &d->parts[i];
        uint64_t n = d->n_parts == 1 ? d->n : m->rows * m->cols;
        m->dtype->decode(m, 0, n, at);
        at += n;
    }
    return CAISSON_OK;
}

static caisson_status encode(job *j, const csn_st_tensor *t, const float *x, uint64_t n,
                             csn_buf *out) {
    static const csn_encode_options plain = {0};
    bool is_f16 = t->dtype == csn_dtype_by_name(CSN_STR("f16"));
    for (uint64_t i = 0; is_f16 && i < n; i++) {
        if (isfinite(x[i]) && (csn_f32_to_f16(x[i]) & 0x7c00u) == 0x7c00u) {
            return CSN_FAIL(j->err, CAISSON_E_BOUNDS, .tensor = t->name,
                            .what = "a value that f16 cannot hold: choose f32 or bf16");
        }
    }
    return t->dtype->encode(x, &t->shape, &plain, j->pool, out, j->err);
}

static caisson_status write_tensor(job *j, uint32_t i, csn_st_writer *w) {
    const csn_st_tensor *t = &j->tensors[i];
    decoding d = {0};
    uint64_t f32_bytes;
    if (!csn_shape_count(&t->shape, &d.n) || !csn_mul(d.n, sizeof(float), &f32_bytes) ||
        f32_bytes > SIZE_MAX) {
        return CSN_FAIL(j->err, CAISSON_E_BOUNDS, .tensor = t->name, .what = "tensor is too large");
    }
    for (; d.n_parts < j->items[i].n_sources; d.n_parts++) {
        CSN_TRY(
            csn_store_matrix(j->store, j->items[i].source[d.n_parts], &d.parts[d.n_parts], j->err));
    }
    CSN_TRY(csn_alloc_aligned((size_t)f32_bytes, (void **)&d.x, j->err));
    caisson_status status = csn_store_guarded(j->store, decode, &d, j->err);
    if (status == CAISSON_OK) {
        status = encode(j, t, d.x, d.n, &j->encoded);
    }
    if (status == CAISSON_OK) {
        status = csn_st_writer_tensor(w, j->encoded.ptr, t->nbytes, j->err);
    }
    csn_free_aligned(d.x);
    return status;
}

static caisson_status write_file(job *j, uint32_t i_file) {
    csn_buf path;
    char name[FILE_NAME];
    csn_st_writer *w = NULL;
    file_name(i_file, j->n_files, "", name);
    uint32_t begin = j->first[i_file], end = j->first[i_file + 1];
    caisson_status status = stage(j, name, &path);
    if (status == CAISSON_OK) {
        status = csn_st_writer_new(j->fs, path.ptr, j->tensors + begin, end - begin, &w, j->err);
    }
    for (uint32_t i = begin; i < end && status == CAISSON_OK; i++) {
        status = write_tensor(j, i, w);
        j->n_done += j->tensors[i].nbytes;
        if (status == CAISSON_OK) {
            status = csn_progress_tell(j->o->progress, "export", j->n_done, j->n_total, j->err);
        }
    }
    if (status == CAISSON_OK) {
        status = csn_st_writer_finish(w, j->err);
    }
    csn_st_writer_close(w);
    csn_buf_free(&path);
    return status;
}

/* ---- what lies beside ---- */

static caisson_status write_text(job *j, const char *name, csn_str text) {
    csn_buf path;
    caisson_status status = stage(j, name, &path);
    if (status == CAISSON_OK) {
        status = csn_fs_write_all(j->fs, path.ptr, text, j->err);
    }
    csn_buf_free(&path);
    return status;
}

typedef void (*put_fn)(const job *j, csn_jw *w);

static caisson_status make_json(job *j, put_fn put, csn_buf *text) {
    csn_jw w = csn_jw_begin(text, j->err);
    w.pretty = true;
    put(j, &w);
    return csn_jw_end(&w);
}

static caisson_status write_json(job *j, const char *name, put_fn put) {
    csn_buf text = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = make_json(j, put, &text);
    if (status == CAISSON_OK) {
        status = write_text(j, name, csn_buf_view(&text));
    }
    csn_buf_free(&text);
    return status;
}

static void put_config(const job *j, csn_jw *w) {
    const char *name = j->o->dtype->name;
    csn_hf_config_write(j->cmf,
                        strcmp(name, "f32") == 0   ? "float32"
                        : strcmp(name, "f16") == 0 ? "float16"
                                                   : "bfloat16",
                        w);
}

/* Which file has which tensor. */
static void put_index(const job *j, csn_jw *w) {
    char name[FILE_NAME];
    csn_jw_object(w);
    csn_jw_key(w, CSN_STR("metadata"));
    csn_jw_object(w);
    csn_jw_put_u64(w, "total_size", j->n_total);
    csn_jw_object_end(w);
    csn_jw_key(w, CSN_STR("weight_map"));
    csn_jw_object(w);
    for (uint32_t k = 0; k < j->n_files; k++) {
        file_name(k, j->n_files, "", name);
        for (uint32_t i = j->first[k]; i < j->first[k + 1]; i++) {
            csn_jw_key(w, j->items[i].name);
            csn_jw_str(w, csn_str_from(name));
        }
    }
    csn_jw_object_end(w);
    csn_jw_object_end(w);
}

static void put_tokenizer_config(const job *j, csn_jw *w) {
    const csn_chat_bundle *chat = &j->cmf->chat;
    csn_jw_object(w);
    csn_jw_put_str(w, "tokenizer_class", CSN_STR("PreTrainedTokenizerFast"));
    csn_jw_put_u64(w, "model_max_length", j->cmf->arch.max_position_embeddings);
    csn_jw_put_bool(w, "clean_up_tokenization_spaces", false);
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
        if (chat->special_tokens[i].len > 0) {
            csn_jw_put_str(w, csn_cmf_special_tokens[i], chat->special_tokens[i]);
        }
    }
    if (chat->chat_template.len > 0) {
        csn_jw_put_str(w, "chat_template", chat->chat_template);
    }
    csn_jw_object_end(w);
}

static caisson_status write_tokenizer(job *j) {
    const csn_chat_bundle *chat = &j->cmf->chat;
    csn_buf vocab = {0};
    CSN_TRY(csn_cmf_read_section(csn_cmf_file_of(j->cmf, 0), CSN_CMF_VOCAB, &vocab, j->err));
    caisson_status status = CAISSON_OK;
    bool has_vocab = vocab.len > 0;
    if (has_vocab) {
        status = write_text(j, "tokenizer.json", csn_buf_view(&vocab));
    } else {
        CSN_WARN(j->o->log, "the file has no tokenizer: none is written");
    }
    csn_buf_free(&vocab);
    if (status == CAISSON_OK &&
        (has_vocab || chat->has_special_tokens || chat->chat_template.len > 0)) {
        status = write_json(j, "tokenizer_config.json", put_tokenizer_config);
    }
    return status;
}

static caisson_status remove_if_there(const job *j, const char *name) {
    csn_buf path;
    caisson_status status = path_of(j, name, &path);
    if (status == CAISSON_OK && j->fs->ops->exists(j->fs, path.ptr)) {
        status = j->fs->ops->remove(j->fs, path.ptr, j->err);
    }
    csn_buf_free(&path);
    return status;
}

/* Into how many files an export wrote that was killed; 0: there was none. */
static caisson_status read_mark(const job *j, uint32_t *ret) {
    csn_buf path;
    csn_buf text = {0};
    uint64_t n = 0;
    caisson_status status = path_of(j, MARK, &path);
    if (status == CAISSON_OK && j->fs->ops->exists(j->fs, path.ptr)) {
        status = csn_fs_read_all(j->fs, path.ptr, MAX_MARK, &text, j->err);
    }
    if (text.len > 0) {
        n = strtoull(text.ptr, NULL, 10);
    }
    csn_buf_free(&text);
    csn_buf_free(&path);
    *ret = n <= CAISSON_MAX_TENSORS ? (uint32_t)n : 0;
    return status;
}

/* Where config.json is, the model is whole. An index of an earlier export would be read in place of
 * the new file. */
static const char *const whole[] = {"config.json", INDEX, "model.safetensors"};

static caisson_status check_target(const job *j, uint32_t n_begun) {
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        csn_buf path;
        caisson_status status = path_of(j, whole[i], &path);
        if (status == CAISSON_OK && !j->o->overwrite && (i == 0 || n_begun == 0) &&
            j->fs->ops->exists(j->fs, path.ptr)) {
            status = CSN_FAIL(j->err, CAISSON_E_EXISTS, .file = path.ptr,
                              .what = "a model is there; say that it may be replaced");
        }
        csn_buf_free(&path);
        CSN_TRY(status);
    }
    return CAISSON_OK;
}

/* The files of weights of an export into n files that have this ending. */
static caisson_status remove_weights(const job *j, uint32_t n, const char *ending) {
    for (uint32_t i = 0; i < n; i++) {
        char name[FILE_NAME];
        file_name(i, n, ending, name);
        CSN_TRY(remove_if_there(j, name));
    }
    return CAISSON_OK;
}

/* What a killed export had not put into its place. */
static caisson_status clear_staged(const job *j, uint32_t n_begun) {
    static const char *const texts[] = {INDEX, "config.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; n_begun > 0 && i < sizeof(texts) / sizeof(texts[0]); i++) {
        char name[FILE_NAME];
        snprintf(name, sizeof(name), "%s" STAGED, texts[i]);
        CSN_TRY(remove_if_there(j, name));
        snprintf(name, sizeof(name), "%s" STAGED ".tmp", texts[i]);
        CSN_TRY(remove_if_there(j, name));
    }
    CSN_TRY(remove_weights(j, n_begun, STAGED));
    return remove_weights(j, n_begun, STAGED ".part");
}

/* The model that was there, and weights that a killed export had put into their places. */
static caisson_status clear_target(job *j, uint32_t n_begun) {
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        csn_buf path;
        caisson_status status = path_of(j, whole[i], &path);
        if (status == CAISSON_OK && j->fs->ops->exists(j->fs, path.ptr)) {
            j->is_clearing = true;
            status = j->fs->ops->remove(j->fs, path.ptr, j->err);
        }
        csn_buf_free(&path);
        CSN_TRY(status);
    }
    return remove_weights(j, n_begun, "");
}

static caisson_status place(job *j, const char *staged) {
    csn_buf path = CSN_BUF_INIT(1 << 16);
    caisson_status status = csn_buf_append(&path, staged, strlen(staged) - strlen(STAGED), j->err);
    if (status == CAISSON_OK) {
        status = note_placed(j, path.ptr);
    }
    if (status == CAISSON_OK) {
        status = j->fs->ops->rename(j->fs, staged, path.ptr, j->err);
    }
    if (status == CAISSON_OK) {
        status = j->fs->ops->sync_dir(j->fs, path.ptr, j->err);
    }
    csn_buf_free(&path);
    return status;
}

static caisson_status place_all(job *j) {
    for (size_t at = 0; at < j->staged.len; at += strlen(j->staged.ptr + at) + 1) {
        CSN_TRY(place(j, j->staged.ptr + at));
    }
    return CAISSON_OK;
}

/* The claim ends with the process. *ret_n_begun: as read_mark tells. */
static caisson_status claim(job *j, uint32_t *ret_n_begun) {
    csn_buf path;
    bool is_ours = true;
    CSN_TRY(path_of(j, MARK, &path));
    bool is_there = j->fs->ops->exists(j->fs, path.ptr);
    caisson_status status = is_there ? CAISSON_OK : note_placed(j, path.ptr);
    if (status == CAISSON_OK) {
        status = csn_fs_open(j->fs, path.ptr, is_there ? CSN_OPEN_READ_WRITE : CSN_OPEN_CREATE_NEW,
                             &j->mark, j->err);
    }
    if (status == CAISSON_OK) {
        status = j->mark->ops->lock(j->mark, &is_ours, j->err);
    }
    csn_buf_free(&path);
    if (status == CAISSON_OK && !is_ours) {
        j->placed.len = 0; /* it is the other's to remove */
        return CSN_FAIL(j->err, CAISSON_E_BUSY, .file = j->dir,
                        .what = "another export is writing into this directory");
    }
    return status == CAISSON_OK ? read_mark(j, ret_n_begun) : status;
}

static caisson_status write_mark(job *j) {
    char text[MAX_MARK];
    snprintf(text, sizeof(text), "%" PRIu32 "\n", j->n_files);
    CSN_TRY(csn_file_write_at(j->mark, 0, text, strlen(text), j->err));
    CSN_TRY(j->mark->ops->truncate(j->mark, strlen(text), j->err));
    CSN_TRY(j->mark->ops->sync(j->mark, j->err));
    return j->fs->ops->sync_dir(j->fs, j->mark->path, j->err);
}

static void tell_latent_eps(const job *j) {
    const csn_arch *a = &j->cmf->arch;
    double ours = a->mla.norm_eps != 0 ? a->mla.norm_eps : a->rms_norm_eps;
    double theirs = csn_hf_latent_eps(j->cmf);
    if (theirs != 0 && (float)ours != (float)theirs) {
        CSN_WARN(j->o->log, "the norms of latents add %g here, and %g in transformers, always",
                 ours, theirs);
    }
}

/* What convert would read from it is the model that is exported: its class may have no word for a
 * part of the model, or mean another number where the word is left out. */
static caisson_status check_config(const job *j, csn_str text, caisson_error *err) {
    csn_source s = {0};
    csn_json *doc = NULL;
    csn_arch want = j->cmf->arch;
    csn_arch_init(&s.arch);
    caisson_status status = csn_json_parse(text, CSN_JSON_UNIQUE, &doc, err);
    if (status == CAISSON_OK) {
        status = csn_source_read_config(&s, csn_json_root(doc), NULL, err);
    }
    if (status == CAISSON_OK) {
        want.mla.norm_eps = s.arch.mla.norm_eps; /* told apart from this */
        status = csn_arithmetic_check(&s.arch, &want, "config.json would say another model", err);
    }
    csn_json_free(doc);
    csn_arena_done(&s.arena);
    return status;
}

static caisson_status write_checked_config(job *j, csn_str text) {
    caisson_error why;
    caisson_status status = check_config(j, text, &why);
    if (status == CAISSON_E_NOMEM) {
        *j->err = why;
        return status;
    }
    if (status != CAISSON_OK) {
        char line[1024];
        CSN_WARN(j->o->log, "no config.json: %s", caisson_error_format(&why, line, sizeof(line)));
        return CAISSON_OK;
    }
    tell_latent_eps(j);
    return write_text(j, "config.json", text);
}

static caisson_status write_config(job *j) {
    const char *gap = csn_hf_config_gap(j->cmf);
    if (gap != NULL) {
        CSN_WARN(j->o->log, "no config.json: the model has %s", gap);
        return CAISSON_OK;
    }
    csn_buf text = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    caisson_status status = make_json(j, put_config, &text);
    if (status == CAISSON_OK) {
        status = write_checked_config(j, csn_buf_view(&text));
    }
    csn_buf_free(&text);
    return status;
}

static caisson_status run(job *j) {
    const csn_cmf_skill *skill;
    uint32_t n_begun;
    if (j->o->skill.len > 0) {
        CSN_TRY(csn_cmf_find_skill(j->cmf, j->o->skill, &skill, j->err));
    }
    csn_source_tell_masks(j->cmf, "a Hugging Face directory", j->o->log);
    CSN_TRY(csn_pool_new(j->o->n_threads, &j->pool, j->err));
    CSN_TRY(list_tensors(j));
    CSN_TRY(cut(j));
    j->made_dir = !j->fs->ops->exists(j->fs, j->dir);
    CSN_TRY(j->fs->ops->make_dir(j->fs, j->dir, j->err));
    CSN_TRY(claim(j, &n_begun));
    CSN_TRY(check_target(j, n_begun));
    CSN_TRY(clear_staged(j, n_begun));
    CSN_TRY(write_mark(j));
    for (uint32_t i = 0; i < j->n_files; i++) {
        CSN_TRY(write_file(j, i));
    }
    CSN_TRY(write_tokenizer(j));
    if (j->n_files > 1) {
        CSN_TRY(write_json(j, INDEX, put_index));
    }
    CSN_TRY(write_config(j)); /* last: with it the directory is a model */
    CSN_TRY(clear_target(j, n_begun));
    CSN_TRY(place_all(j));
    return remove_if_there(j, MARK);
}

caisson_status csn_export(csn_store *store, csn_fs *fs, const char *dir,
                          const csn_export_options *options, caisson_error *err) {
    job j = {.store = store,
             .cmf = csn_store_cmf(store),
             .fs = fs,
             .dir = dir,
             .o = options,
             .encoded = CSN_BUF_INIT(SIZE_MAX / 2),
             .staged = CSN_BUF_INIT(SIZE_MAX / 2),
             .placed = CSN_BUF_INIT(SIZE_MAX / 2),
             .err = err};
    caisson_status status = run(&j);
    if (status != CAISSON_OK && !j.is_clearing) { /* else what is new is all there is */
        undo(&j);
    }
    csn_pool_free(j.pool);
    csn_file_close(j.mark);
    csn_buf_free(&j.encoded);
    csn_buf_free(&j.staged);
    csn_buf_free(&j.placed);
    csn_arena_done(&j.arena);
    return status;
}
