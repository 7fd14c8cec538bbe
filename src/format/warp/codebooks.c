/* SPDX-License-Identifier: Apache-2.0 */
/* codebooks.bin (warp facts 4): records of a 16-byte header and entries x 8 binary16 values. The
 * books of a layer stand behind one another: gate's stages, up's, down's. Only books that a layer
 * names are looked at; a resumed conversion may leave others as zeros. */
#include "format/warp/warp_internal.h"

#include "base/alloc.h"
#include "quant/half.h"

uint64_t csn_warp_book_nbytes(const csn_warp *w) {
    return CSN_WARP_BOOK_HEADER + (uint64_t)w->entries * CSN_VQ_DIM * 2;
}

static caisson_status check_header(const csn_warp *w, const csn_file *f, uint32_t id,
                                   const uint8_t *book, caisson_error *err) {
    const struct {
        const char *what;
        uint32_t want, got;
    } fields[] = {
        {"magic of a codebook", CSN_WARP_MAGIC_CODEBOOK, csn_get32(book)},
        {"number of a codebook", id, csn_get16(book + 4)},
        {"vec_dim of a codebook", CSN_VQ_DIM, book[7]},
        {"entries of a codebook", w->entries, csn_get32(book + 8)},
    };
    uint64_t at = id * csn_warp_book_nbytes(w);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].want != fields[i].got) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .file = f->path, .section = "codebooks",
                            CSN_AT(at), .what = fields[i].what,
                            CSN_VALUES(fields[i].want, fields[i].got));
        }
    }
    /* The existing converter writes 4 into the books of all forms. */
    unsigned form = w->index_bits == 6 ? CSN_WARP_FMT_VQ4P : CSN_WARP_FMT_VQ2R;
    if (book[6] != CSN_WARP_FMT_VQ3R && book[6] != form) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .file = f->path, .section = "codebooks",
                        CSN_AT(at + 6), .what = "fmt of a codebook", CSN_VALUES(form, book[6]));
    }
    return CAISSON_OK;
}

float csn_warp_book_value(uint16_t half) {
    return (half & 0x7c00u) == 0 ? csn_half_to_f32(half & 0x8000u) : csn_half_to_f32(half);
}

/* One book into both orders. */
static caisson_status decode(const csn_warp *w, const csn_file *f, uint32_t id, const uint8_t *book,
                             float *entry, float *column, caisson_error *err) {
    for (uint32_t i = 0; i < w->entries * CSN_VQ_DIM; i++) {
        uint16_t half = csn_get16(book + CSN_WARP_BOOK_HEADER + 2 * i);
        if ((half & 0x7c00u) == 0x7c00u) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .file = f->path, .section = "codebooks",
                            CSN_AT(id * csn_warp_book_nbytes(w) + CSN_WARP_BOOK_HEADER + 2 * i),
                            .what = "a codebook holds a value that is not finite",
                            CSN_VALUES(0x7bff, half));
        }
        entry[i] = csn_warp_book_value(half);
        column[i % CSN_VQ_DIM * w->entries + i / CSN_VQ_DIM] = entry[i];
    }
    return CAISSON_OK;
}

static caisson_status decode_kind(csn_warp *w, const csn_file *f, uint32_t first,
                                  const uint8_t *bytes, csn_vq_books *ret, caisson_error *err) {
    float *entry, *column;
    size_t per_book = (size_t)w->entries * CSN_VQ_DIM;
    CSN_TRY(CSN_ARENA_NEW(&w->arena, w->stages * per_book, &entry, err));
    CSN_TRY(CSN_ARENA_NEW(&w->arena, w->stages * per_book, &column, err));
    for (uint32_t s = 0; s < w->stages; s++) {
        const uint8_t *book = bytes + s * csn_warp_book_nbytes(w);
        CSN_TRY(check_header(w, f, first + s, book, err));
        CSN_TRY(decode(w, f, first + s, book, entry + s * per_book, column + s * per_book, err));
    }
    *ret = (csn_vq_books){.stages = w->stages,
                          .entries = w->entries,
                          .is_packed = w->index_bits == 6,
                          .entry = entry,
                          .column = column};
    return CAISSON_OK;
}

caisson_status csn_warp_read_books(csn_warp *w, csn_file *f, csn_warp_bank *bank,
                                   caisson_error *err) {
    uint64_t nbytes = csn_warp_book_nbytes(w);
    uint8_t *bytes; /* at most 3 x 8 books of 4 KiB */
    CSN_TRY(CSN_NEW((size_t)(nbytes * w->stages * CSN_WARP_N_KINDS), &bytes, err));
    caisson_status status = csn_file_read_at(f, bank->codebook_base * nbytes, bytes,
                                             (size_t)(nbytes * w->stages * CSN_WARP_N_KINDS), err);
    for (uint32_t k = 0; k < CSN_WARP_N_KINDS && status == CAISSON_OK; k++) {
        status = decode_kind(w, f, bank->codebook_base + k * w->stages,
                             bytes + k * w->stages * nbytes, &bank->books[k], err);
    }
    csn_free(bytes);
    return status;
}
