/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/saved.h"

#include "base/le.h"
#include "base/size.h"
#include "engine/session_internal.h"
#include "quant/half.h"

enum {
    MAGIC = 0x53414457, /* "WDAS" */
    VERSION = 1,
    HEADER_BYTES = 64,
    N_SHAPES = 10,  /* numbers of the header that belong to the model */
    KDA_SHAPES = 2, /* the first of linear layers' numbers */
    MLA_SHAPES = 5, /* and of latent attention's */
    RES_SHAPE = 9,
    DEFAULT_CONV = 4, /* the existing engine's, where no layer has a convolution */
    FLUSH_BYTES = 1 << 20
};

static const char *const shape_names[N_SHAPES] = {
    "n_layers", "hidden_size", "kda_heads", "kda_head_dim", "conv_width",
    "n_heads",  "qk_nope",     "qk_rope",   "v_head_dim",   "attn_res_block"};

/* Either direction: a file, and the bytes that are on their way. */
typedef struct stream {
    csn_file *f;
    uint64_t at; /* of buf's first byte */
    csn_buf buf;
    size_t pos; /* reading: first byte of buf that was not taken */
    caisson_error *err;
} stream;

typedef struct sizes {
    uint32_t shape[N_SHAPES];
    uint32_t n_res;
    bool has_kda, has_mla;
} sizes;

static caisson_status describe(const csn_session *s, sizes *ret, caisson_error *err) {
    const csn_plan *p = csn_session_plan(s);
    sizes z = {.shape = {p->n_layers, p->hidden, [KDA_SHAPES + 2] = DEFAULT_CONV}};
    z.shape[RES_SHAPE] = p->res_block;
    z.n_res = p->res_block != 0 ? (p->n_layers + p->res_block - 1) / p->res_block : 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const csn_layer *l = &p->layers[i];
        if (l->kda != NULL) {
            z.has_kda = true;
            z.shape[KDA_SHAPES] = l->kda->n_heads;
            z.shape[KDA_SHAPES + 1] = l->kda->dim;
            z.shape[KDA_SHAPES + 2] = l->kda->conv_width;
        } else if (l->mla != NULL) {
            z.has_mla = true;
            z.shape[MLA_SHAPES] = l->n_heads;
            z.shape[MLA_SHAPES + 1] = l->mla->n_nope;
            z.shape[MLA_SHAPES + 2] = l->mla->n_rope;
            z.shape[MLA_SHAPES + 3] = l->mla->n_v;
        }
        if ((l->kda == NULL && l->mla == NULL) || p->n_loops != 1) {
            return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "session", CSN_AT(i),
                            .what = "only sessions of KDA and latent attention can be saved");
        }
    }
    if (csn_session_kv(s)->type_k == CSN_KV_Q8_0) {
        return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .section = "session",
                        .what = "keys kept in q8_0 cannot be saved (--cache-type-k f16 or f32)");
    }
    *ret = z;
    return CAISSON_OK;
}

/* ---- the layers' numbers, one after the other, in the file's order ---- */

/* Passes one number from the state to the file, or back. */
typedef caisson_status (*pass_fn)(stream *st, float *x);

static caisson_status pass_kda(stream *st, pass_fn pass, const csn_kda *kda, csn_kda_state state) {
    uint64_t width = (uint64_t)kda->n_heads * kda->dim;
    uint64_t past = kda->conv_width - 1;
    uint64_t head = csn_kda_head_floats(kda);
    for (uint32_t h = 0; h < kda->n_heads; h++) {
        for (uint32_t k = 0; k < kda->dim; k++) {
            for (uint32_t v = 0; v < kda->dim; v++) {
                uint64_t block = v / CSN_DELTA_COLS * (uint64_t)kda->dim * CSN_DELTA_COLS;
                CSN_TRY(pass(st, state.s + h * head + block + k * (uint64_t)CSN_DELTA_COLS +
                                     v % CSN_DELTA_COLS));
            }
        }
    }
    for (uint64_t i = 0; i < 3; i++) {
        for (uint64_t c = 0; c < width; c++) {
            for (uint64_t j = 0; j < past; j++) {
                CSN_TRY(pass(st, state.conv + (i * past + j) * width + c));
            }
        }
    }
    return CAISSON_OK;
}

/* Key and value of one position of latent attention, in f32. */
static void read_row(const csn_kv_head *kv, uint32_t pos, float *row) {
    const uint8_t *from = kv->v + pos * csn_kv_v_row_bytes(kv->type_v, kv->head_dim);
    for (uint64_t i = 0; i < kv->head_dim; i++) {
        row[i] = kv->type_v == CSN_KV_F16 ? csn_half_to_f32(csn_get16(from + 2 * i))
                                          : csn_f32_from_bits(csn_get32(from + 4 * i));
    }
}

/* ---- writing ---- */

static caisson_status flush(stream *st) {
    CSN_TRY(csn_file_write_at(st->f, st->at, st->buf.ptr, st->buf.len, st->err));
    st->at += st->buf.len;
    st->buf.len = 0;
    return CAISSON_OK;
}

static caisson_status put32(stream *st, uint32_t v) {
    uint8_t b[4];
    csn_put32(b, v);
    if (st->buf.len >= FLUSH_BYTES) {
        CSN_TRY(flush(st));
    }
    return csn_buf_append(&st->buf, b, sizeof(b), st->err);
}

static caisson_status put_float(stream *st, float *x) {
    return put32(st, csn_f32_bits(*x));
}

static caisson_status put_header(stream *st, const sizes *z, uint32_t n_past) {
    CSN_TRY(put32(st, MAGIC));
    CSN_TRY(put32(st, VERSION));
    for (int i = 0; i < N_SHAPES; i++) {
        CSN_TRY(put32(st, z->shape[i]));
    }
    CSN_TRY(put32(st, n_past));
    CSN_TRY(put32(st, z->n_res));
    CSN_TRY(put32(st, 0));
    return put32(st, 0);
}

static caisson_status pass_layers(csn_session *s, stream *st, pass_fn pass, uint32_t n_past,
                                  float *row, caisson_status (*n_kv)(stream *st, uint32_t n)) {
    const csn_plan *p = csn_session_plan(s);
    const csn_kv *kv = csn_session_kv(s);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const csn_layer *l = &p->layers[i];
        if (l->kda != NULL) {
            CSN_TRY(pass_kda(st, pass, l->kda, csn_kv_get_kda(kv, l, i)));
            continue;
        }
        csn_kv_head head = csn_kv_get(kv, l, i, 0);
        CSN_TRY(n_kv(st, n_past));
        for (uint32_t pos = 0; pos < n_past; pos++) {
            read_row(&head, pos, row);
            for (uint32_t k = 0; k < head.head_dim; k++) {
                CSN_TRY(pass(st, &row[k]));
            }
            if (csn_vec_get()->kv_store(&head, pos, row, NULL) != 0) { /* what was read goes back */
                return CSN_FAIL(st->err, CAISSON_E_UNSUPPORTED, .section = "session",
                                .what = "a number that keys in f16 cannot hold "
                                        "(--cache-type-k f32)");
            }
        }
    }
    return CAISSON_OK;
}

/* Snapshots of residuals and the last hidden state end the file. The next token makes them anew, so
 * zeros are as good. */
static caisson_status put_zeros(stream *st, const sizes *z) {
    for (uint64_t i = 0; i < ((uint64_t)z->n_res + 1) * z->shape[1]; i++) {
        CSN_TRY(put32(st, 0));
    }
    return flush(st);
}

static uint32_t widest_row(const csn_plan *p) {
    uint32_t n = 1;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const csn_mla *mla = p->layers[i].mla;
        uint32_t row = mla != NULL ? mla->n_latent + mla->n_rope : 0;
        n = row > n ? row : n;
    }
    return n;
}

static caisson_status save_to(csn_session *s, stream *st, const sizes *z) {
    uint32_t n_past = csn_session_n_past(s);
    float *row;
    CSN_TRY(CSN_NEW(widest_row(csn_session_plan(s)), &row, st->err));
    caisson_status status = put_header(st, z, n_past);
    if (status == CAISSON_OK) {
        status = pass_layers(s, st, put_float, n_past, row, put32);
    }
    if (status == CAISSON_OK) {
        status = put_zeros(st, z);
    }
    csn_free(row);
    return status == CAISSON_OK ? st->f->ops->sync(st->f, st->err) : status;
}

caisson_status csn_session_save(csn_session *s, csn_fs *fs, const char *path, caisson_error *err) {
    sizes z;
    stream st = {.buf = CSN_BUF_INIT(2 * FLUSH_BYTES), .err = err};
    csn_buf temp = CSN_BUF_INIT(1 << 16);
    caisson_error ignored;
    CSN_TRY(describe(s, &z, err));
    if (csn_session_n_past(s) == 0) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "an empty session: there is nothing to save");
    }
    CSN_TRY(csn_session_settle(s, err));
    caisson_status status = csn_buf_printf(&temp, err, "%s.tmp", path);
    if (status == CAISSON_OK && fs->ops->exists(fs, temp.ptr)) { /* of a killed writer */
        (void)fs->ops->remove(fs, temp.ptr, &ignored);
    }
    if (status == CAISSON_OK) {
        status = csn_fs_open(fs, temp.ptr, CSN_OPEN_CREATE_PRIVATE, &st.f, err);
    }
    if (status == CAISSON_OK) {
        status = save_to(s, &st, &z);
        csn_file_close(st.f);
        if (status == CAISSON_OK) {
            status = fs->ops->rename(fs, temp.ptr, path, err);
        }
        if (status != CAISSON_OK) {
            (void)fs->ops->remove(fs, temp.ptr, &ignored);
        } else {
            status = fs->ops->sync_dir(fs, path, err);
        }
    }
    csn_buf_free(&st.buf);
    csn_buf_free(&temp);
    return status;
}

/* ---- reading ---- */

static caisson_status get32(stream *st, uint32_t *ret) {
    if (st->pos == st->buf.len) {
        uint64_t size;
        CSN_TRY(csn_file_size(st->f, &size, st->err));
        st->at += st->buf.len;
        uint64_t left = size > st->at ? size - st->at : 0;
        st->buf.len = (size_t)(left < FLUSH_BYTES ? left : FLUSH_BYTES) / 4 * 4;
        st->pos = 0;
        if (st->buf.len == 0) {
            return CSN_FAIL(st->err, CAISSON_E_IO, CSN_AT(st->at), .what = "the file ends early");
        }
        CSN_TRY(csn_file_read_at(st->f, st->at, st->buf.ptr, st->buf.len, st->err));
    }
    *ret = csn_get32((const uint8_t *)st->buf.ptr + st->pos);
    st->pos += 4;
    return CAISSON_OK;
}

static caisson_status get_float(stream *st, float *x) {
    uint32_t bits;
    CSN_TRY(get32(st, &bits));
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return CSN_FAIL(st->err, CAISSON_E_PARSE, .section = "session",
                        CSN_AT(st->at + st->pos - 4), .what = "a number that is not finite");
    }
    *x = csn_f32_from_bits(bits);
    return CAISSON_OK;
}

static caisson_status get_n_kv(stream *st, uint32_t n_past) {
    uint32_t n;
    CSN_TRY(get32(st, &n));
    return n == n_past ? CAISSON_OK
                       : CSN_FAIL(st->err, CAISSON_E_PARSE, .section = "session",
                                  CSN_AT(st->at + st->pos - 4),
                                  .what = "a layer holds another number of positions",
                                  CSN_VALUES(n_past, n));
}

static uint64_t file_bytes(const csn_plan *p, uint32_t n_past, uint32_t n_res) {
    uint64_t n = HEADER_BYTES / 4 + ((uint64_t)n_res + 1) * p->hidden;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const csn_kda *kda = p->layers[i].kda;
        const csn_mla *mla = p->layers[i].mla;
        if (kda != NULL) {
            n += (uint64_t)kda->n_heads * kda->dim * (kda->dim + 3 * (kda->conv_width - 1));
        } else {
            n += 1 + (uint64_t)n_past * (mla->n_latent + mla->n_rope);
        }
    }
    return n * 4;
}

/* The existing engine writes what config says, of kinds of layers that the model has not, too. */
static bool is_compared(const sizes *z, int i) {
    return i < KDA_SHAPES || i == RES_SHAPE || (i < MLA_SHAPES ? z->has_kda : z->has_mla);
}

static caisson_status check_header(const csn_session *s, stream *st, const sizes *z,
                                   uint32_t *ret_past) {
    uint32_t word[HEADER_BYTES / 4];
    uint64_t size;
    for (int i = 0; i < HEADER_BYTES / 4; i++) {
        CSN_TRY(get32(st, &word[i]));
    }
    if (word[0] != MAGIC || word[1] != VERSION) {
        return CSN_FAIL(st->err, word[0] != MAGIC ? CAISSON_E_MAGIC : CAISSON_E_VERSION,
                        .section = "session", .what = "this is no saved session that we know",
                        CSN_VALUES(word[0] != MAGIC ? (uint64_t)MAGIC : VERSION,
                                   word[0] != MAGIC ? word[0] : word[1]));
    }
    for (int i = 0; i < N_SHAPES; i++) {
        if (is_compared(z, i) && word[2 + i] != z->shape[i]) {
            return CSN_FAIL(st->err, CAISSON_E_PARSE, .section = "session", CSN_AT(8 + 4 * i),
                            .tensor = csn_str_from(shape_names[i]),
                            .what = "the session was saved by a model of another shape",
                            CSN_VALUES(z->shape[i], word[2 + i]));
        }
    }
    uint32_t n_past = word[2 + N_SHAPES];
    uint32_t n_res = word[3 + N_SHAPES];
    if (n_past > csn_session_n_ctx(s)) {
        return CSN_FAIL(st->err, CAISSON_E_CONTEXT,
                        .what = "the session is longer than the context",
                        CSN_VALUES(csn_session_n_ctx(s), n_past));
    }
    CSN_TRY(csn_file_size(st->f, &size, st->err));
    uint64_t want =
        n_res <= CSN_MAX_RES_BLOCKS ? file_bytes(csn_session_plan(s), n_past, n_res) : UINT64_MAX;
    if (size != want) {
        return CSN_FAIL(st->err, CAISSON_E_BOUNDS, .section = "session",
                        .what = "the file has another size than its header says",
                        CSN_VALUES(want, size));
    }
    *ret_past = n_past;
    return CAISSON_OK;
}

static caisson_status load_from(csn_session *s, stream *st) {
    sizes z;
    uint32_t n_past;
    float *row;
    CSN_TRY(describe(s, &z, st->err));
    CSN_TRY(csn_buf_reserve(&st->buf, FLUSH_BYTES, st->err));
    CSN_TRY(check_header(s, st, &z, &n_past));
    CSN_TRY(CSN_NEW(widest_row(csn_session_plan(s)), &row, st->err));
    csn_session_restored(s, 0);
    caisson_status status = pass_layers(s, st, get_float, n_past, row, get_n_kv);
    csn_free(row);
    if (status == CAISSON_OK) {
        csn_session_restored(s, n_past);
    }
    return status;
}

caisson_status csn_session_load(csn_session *s, csn_fs *fs, const char *path, caisson_error *err) {
    stream st = {.buf = CSN_BUF_INIT(FLUSH_BYTES + 64), .err = err};
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_READ, &st.f, err));
    caisson_status status = load_from(s, &st);
    csn_file_close(st.f);
    csn_buf_free(&st.buf);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}
