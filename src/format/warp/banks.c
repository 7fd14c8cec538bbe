/* SPDX-License-Identifier: Apache-2.0 */
/* Geometry of the experts (`expert_quant`) and the bank of each layer (`layers`; warp facts 2.1,
 * 2.2). */
#include "format/warp/warp_internal.h"

#include <stdio.h>

#include "base/json_fields.h"

struct raw_quant {
    csn_str fmt;
    uint32_t stages, vec_dim, entries, index_block, index_bits;
};
static const csn_jfield quant_fields[] = {
    CSN_JFIELD(struct raw_quant, fmt, "fmt", CSN_JT_STR, 0),
    CSN_JFIELD(struct raw_quant, stages, "stages", CSN_JT_U32, 0),
    CSN_JFIELD(struct raw_quant, vec_dim, "vec_dim", CSN_JT_U32, 0),
    CSN_JFIELD(struct raw_quant, entries, "entries", CSN_JT_U32, 0),
    CSN_JFIELD(struct raw_quant, index_block, "index_block", CSN_JT_U32, 0),
    CSN_JFIELD(struct raw_quant, index_bits, "index_bits", CSN_JT_U32, 0),
};

/* The engine that exists looks at index_bits and not at the name: they must not disagree, because
 * packed and unpacked indices have the same length. */
static caisson_status check_quant(const struct raw_quant *q, caisson_error *err) {
    if (csn_str_is(q->fmt, "SUB1")) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("fmt"),
                        .what = "substitutes of experts (SUB1) are specified, but not read",
                        CSN_TEXTS(CSN_STR("VQ3R, VQ2R or VQ4P"), q->fmt));
    }
    if (q->fmt.len > 0 && !csn_str_starts(q->fmt, CSN_STR("VQ"))) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("fmt"),
                        .what = "unknown form of experts",
                        CSN_TEXTS(CSN_STR("VQ3R, VQ2R or VQ4P"), q->fmt));
    }
    if (q->vec_dim != CSN_VQ_DIM) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("vec_dim"),
                        .what = "vectors of another length are not read",
                        CSN_VALUES(CSN_VQ_DIM, q->vec_dim));
    }
    if (q->index_block != 0 && q->index_block != CSN_VQ_BLOCK) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("index_block"),
                        .what = "blocks of another size are not read",
                        CSN_VALUES(CSN_VQ_BLOCK, q->index_block));
    }
    if (q->stages < 1 || q->stages > CSN_VQ_MAX_STAGES) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("stages"), .what = "out of range",
                        CSN_VALUES(CSN_VQ_MAX_STAGES, q->stages));
    }
    if (q->entries < 1 || q->entries > CSN_VQ_MAX_ENTRIES) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("entries"), .what = "out of range",
                        CSN_VALUES(CSN_VQ_MAX_ENTRIES, q->entries));
    }
    bool is_packed = q->index_bits == 6;
    if (is_packed ? q->stages != 4 || q->entries != 64 : q->index_bits != 8) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .tensor = CSN_STR("index_bits"),
                        .what = "8 bits, or 6 with 4 stages of 64 entries",
                        CSN_VALUES(8, q->index_bits));
    }
    if (q->fmt.len > 0 && csn_str_is(q->fmt, "VQ4P") != is_packed) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("fmt"),
                        .what = "fmt and index_bits contradict one another",
                        CSN_TEXTS(is_packed ? CSN_STR("VQ4P") : CSN_STR("VQ3R or VQ2R"), q->fmt));
    }
    return CAISSON_OK;
}

caisson_status csn_warp_read_expert_quant(csn_warp *w, caisson_error *err) {
    struct raw_quant q = {
        .stages = 3, .vec_dim = 8, .entries = 256, .index_block = 64, .index_bits = 8};
    const csn_jval *v = csn_jval_get(csn_json_root(w->manifest), "expert_quant");
    caisson_status status = CAISSON_OK;
    if (v != NULL) {
        status = csn_jfields_read(v, quant_fields, CSN_N_FIELDS(quant_fields), "", &q, NULL, err);
    }
    if (status == CAISSON_OK) {
        status = check_quant(&q, err);
    }
    if (status != CAISSON_OK) {
        csn_error_section(err, "expert_quant");
        return status;
    }
    w->stages = q.stages;
    w->entries = q.entries;
    w->index_bits = q.index_bits;
    w->index_block = q.index_block;
    return CAISSON_OK;
}

struct raw_bank {
    csn_str file;
    uint32_t experts, codebook_base;
    uint64_t bytes;
};
static const csn_jfield bank_fields[] = {
    CSN_JFIELD(struct raw_bank, file, "file", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw_bank, experts, "experts", CSN_JT_U32, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw_bank, bytes, "bytes", CSN_JT_U64, CSN_JF_REQUIRED),
    CSN_JFIELD(struct raw_bank, codebook_base, "codebook_base", CSN_JT_U32, CSN_JF_REQUIRED),
};

struct banks { /* what all of them share */
    csn_warp *w;
    const csn_warp_config *config;
    csn_file *codebooks;
    uint32_t n_books;
    uint64_t record_nbytes; /* at least, before it is padded */
    uint64_t index_nbytes[CSN_WARP_N_KINDS];
    caisson_error *err;
};

/* A name becomes a path inside the directory, of a file or of a link to one. */
static caisson_status check_file_name(const struct banks *b, csn_str name) {
    bool ok = name.len > 0 && name.len <= CSN_WARP_MAX_FILE_NAME && name.ptr[0] != '.';
    for (size_t i = 0; ok && i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        ok = c >= 0x20 && c != '/' && c != '\\' && c != ':' && c != 0x7f;
    }
    for (uint32_t i = 0; ok && i < b->w->n_banks; i++) {
        if (csn_str_eq(b->w->banks[i].file_name, name)) {
            return CSN_FAIL(b->err, CAISSON_E_PARSE, .tensor = name,
                            .what = "two layers name the same bank");
        }
    }
    return ok ? CAISSON_OK
              : CSN_FAIL(b->err, CAISSON_E_PARSE, .tensor = name,
                         .what = "name of a bank is not a plain file name of at most 63 bytes");
}

static caisson_status check_bank(const struct banks *b, const struct raw_bank *raw) {
    csn_warp *w = b->w;
    if (raw->experts != b->config->n_experts) {
        return CSN_FAIL(b->err, CAISSON_E_PARSE, .what = "experts differ from config.num_experts",
                        CSN_VALUES(b->config->n_experts, raw->experts));
    }
    if (raw->bytes == 0 || raw->bytes % raw->experts != 0 ||
        raw->bytes / raw->experts % CSN_WARP_PAGE != 0) {
        return CSN_FAIL(b->err, CAISSON_E_BOUNDS,
                        .what = "bytes of a bank are not experts x a multiple of 4096",
                        CSN_VALUES(raw->experts, raw->bytes));
    }
    uint64_t stride = raw->bytes / raw->experts;
    if (stride < b->record_nbytes || stride / CSN_WARP_PAGE > UINT32_MAX) {
        return CSN_FAIL(b->err, CAISSON_E_BOUNDS,
                        .what = "a record does not hold three matrices of this shape",
                        CSN_VALUES(b->record_nbytes, stride));
    }
    if (raw->codebook_base > b->n_books ||
        b->n_books - raw->codebook_base < w->stages * CSN_WARP_N_KINDS) {
        return CSN_FAIL(
            b->err, CAISSON_E_BOUNDS, .tensor = CSN_STR("codebook_base"),
            .what = "codebooks.bin does not hold the books of this layer",
            CSN_VALUES(raw->codebook_base + (uint64_t)w->stages * CSN_WARP_N_KINDS, b->n_books));
    }
    return check_file_name(b, raw->file);
}

static caisson_status open_bank(struct banks *b, const struct raw_bank *raw, uint32_t layer) {
    csn_warp *w = b->w;
    csn_warp_bank *bank = &w->banks[w->n_banks];
    const char *path;
    uint64_t nbytes;
    *bank = (csn_warp_bank){.layer = layer,
                            .file_name = raw->file,
                            .n_experts = raw->experts,
                            .stride = raw->bytes / raw->experts,
                            .codebook_base = raw->codebook_base};
    memcpy(bank->index_nbytes, b->index_nbytes, sizeof(bank->index_nbytes));
    CSN_TRY(csn_warp_path(w, raw->file, &path, b->err));
    CSN_TRY(csn_fs_open(w->fs, path, CSN_OPEN_READ, &bank->file, b->err));
    w->n_banks++; /* from here on closing it is csn_warp_close's */
    CSN_TRY(csn_file_size(bank->file, &nbytes, b->err));
    if (nbytes != raw->bytes) {
        return CSN_FAIL(b->err, CAISSON_E_BOUNDS, .file = path,
                        .what = "the bank's size differs from what the manifest says",
                        CSN_VALUES(raw->bytes, nbytes));
    }
    return csn_warp_read_books(w, b->codebooks, bank, b->err);
}

static caisson_status read_bank(struct banks *b, const csn_jval *layers, uint32_t layer) {
    char key[16];
    struct raw_bank raw = {0};
    (void)snprintf(key, sizeof(key), "%u", layer);
    const csn_jval *v = csn_jval_get(layers, key);
    if (v == NULL) {
        return CSN_FAIL(b->err, CAISSON_E_MISSING, .tensor = csn_str_from(key),
                        .what = "a layer with experts has no bank");
    }
    CSN_TRY(csn_jfields_read(v, bank_fields, CSN_N_FIELDS(bank_fields), key, &raw, NULL, b->err));
    caisson_status status = check_bank(b, &raw);
    if (status == CAISSON_OK) {
        status = open_bank(b, &raw, layer);
    }
    if (status != CAISSON_OK) {
        csn_error_tensor(b->err, csn_str_from(key));
    }
    return status;
}

/* No key but those of layers with experts, each once: as many as there are such layers, all of
 * which are found by name. */
static caisson_status check_count(const struct banks *b, const csn_jval *layers, uint32_t n) {
    size_t have = csn_jval_len(layers);
    if (layers != NULL && csn_jval_kind(layers) != CSN_JSON_OBJECT) {
        return CSN_FAIL(b->err, CAISSON_E_PARSE, .what = "not a JSON object");
    }
    return have <= n
               ? CAISSON_OK
               : CSN_FAIL(b->err, CAISSON_E_PARSE, .what = "banks for layers that have no experts",
                          CSN_VALUES(n, have));
}

/* 48 + indices + a binary16 a row; offsets inside a record have 32 bits. */
static caisson_status plan_record(struct banks *b) {
    const csn_warp *w = b->w;
    const csn_vq_books books = {
        .stages = w->stages, .entries = w->entries, .is_packed = w->index_bits == 6};
    uint64_t n = CSN_WARP_RECORD_HEADER;
    for (unsigned k = 0; k < CSN_WARP_N_KINDS; k++) {
        uint32_t rows = csn_warp_expert_rows(w, k);
        uint32_t cols = csn_warp_expert_cols(w, k);
        if (!csn_vq_index_nbytes(&books, rows, cols, w->index_block, &b->index_nbytes[k]) ||
            !csn_add(n, b->index_nbytes[k], &n) || !csn_add(n, 2 * (uint64_t)rows, &n)) {
            return CSN_FAIL(b->err, CAISSON_E_BOUNDS,
                            .what = "columns of an expert are no multiple of 8, or too many",
                            CSN_VALUES(CSN_VQ_DIM, cols));
        }
    }
    if (n > UINT32_MAX) {
        return CSN_FAIL(b->err, CAISSON_E_BOUNDS, .what = "a record has more than 4 GiB",
                        CSN_VALUES(UINT32_MAX, n));
    }
    b->record_nbytes = n;
    return CAISSON_OK;
}

static caisson_status count_books(struct banks *b) {
    uint64_t nbytes;
    uint64_t each = csn_warp_book_nbytes(b->w);
    CSN_TRY(csn_file_size(b->codebooks, &nbytes, b->err));
    if (nbytes % each != 0 || nbytes / each > CSN_WARP_MAX_BOOKS) {
        return CSN_FAIL(b->err, CAISSON_E_BOUNDS, .file = b->codebooks->path,
                        .section = "codebooks", .what = "not a whole number of codebooks",
                        CSN_VALUES(nbytes - nbytes % each, nbytes));
    }
    b->n_books = (uint32_t)(nbytes / each);
    return CAISSON_OK;
}

static caisson_status read_banks(struct banks *b) {
    csn_warp *w = b->w;
    const csn_jval *layers = csn_jval_get(csn_json_root(w->manifest), "layers");
    uint32_t first = b->config->n_experts > 0 ? b->config->first_moe_layer : w->arch.n_layers;
    CSN_TRY(check_count(b, layers, w->arch.n_layers - first));
    CSN_TRY(count_books(b));
    if (first == w->arch.n_layers) {
        return CAISSON_OK;
    }
    CSN_TRY(plan_record(b));
    CSN_TRY(CSN_ARENA_NEW(&w->arena, w->arch.n_layers - first, &w->banks, b->err));
    for (uint32_t i = first; i < w->arch.n_layers; i++) {
        CSN_TRY(read_bank(b, layers, i));
    }
    return CAISSON_OK;
}

caisson_status csn_warp_read_banks(csn_warp *w, const csn_warp_config *config, caisson_error *err) {
    struct banks b = {.w = w, .config = config, .err = err};
    const char *path;
    CSN_TRY(csn_warp_path(w, CSN_STR("codebooks.bin"), &path, err));
    CSN_TRY(csn_fs_open(w->fs, path, CSN_OPEN_READ, &b.codebooks, err));
    caisson_status status = read_banks(&b);
    csn_file_close(b.codebooks);
    if (status != CAISSON_OK) {
        csn_error_section(err, "layers");
    }
    return status;
}
