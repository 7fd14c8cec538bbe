/* SPDX-License-Identifier: Apache-2.0 */
/* Files of patterned experts and a map of them: every byte tells where it belongs. */
#ifndef TESTS_SUPPORT_EXPERT_BANK_H
#define TESTS_SUPPORT_EXPERT_BANK_H

#include <unistd.h>

#include "store/experts_internal.h"
#include "support/temp_dir.h"
#include "unit/test.h"

enum { BANK_LAYERS = 3, BANK_EXPERTS = 16, BANK_MAX_PIECES = 3 };

typedef struct expert_bank {
    csn_expert_map map;
    csn_file *files[BANK_LAYERS];
    uint32_t n_experts[BANK_LAYERS], layer_ids[BANK_LAYERS];
    csn_expert_piece pieces[BANK_LAYERS * BANK_EXPERTS * BANK_MAX_PIECES];
} expert_bank;

static inline uint64_t bank_word(uint32_t l, uint32_t x, uint32_t p, uint64_t i) {
    uint64_t h = ((uint64_t)l << 40 ^ (uint64_t)x << 32 ^ (uint64_t)p << 30 ^ i) + 1;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* The bytes of a piece; freed by the caller. */
static inline uint8_t *bank_bytes(uint32_t l, uint32_t x, uint32_t p, uint64_t nbytes) {
    uint64_t *words = malloc(nbytes + 8);
    assert_non_null(words);
    for (uint64_t i = 0; i <= nbytes / 8; i++) {
        words[i] = bank_word(l, x, p, i);
    }
    return (uint8_t *)words;
}

static inline const char *bank_path(uint32_t l) {
    char name[32];
    (void)snprintf(name, sizeof(name), "bank-%u.bin", (unsigned)l);
    return temp_path(name);
}

static inline void bank_write_piece(FILE *f, uint32_t l, uint32_t x, uint32_t p, uint64_t nbytes) {
    uint8_t *bytes = bank_bytes(l, x, p, nbytes);
    assert_int_equal(fwrite(bytes, 1, nbytes, f), nbytes);
    free(bytes);
}

/* One file a layer. n_pieces 1: records of `nbytes` rounded up to disk blocks, one after the other.
 * 3: pieces of nbytes, nbytes + 1, nbytes + 2 bytes, with a gap of 64 bytes before each: nothing
 * begins or ends where a disk block does. */
static inline void bank_make(expert_bank *b, csn_fs *fs, uint32_t n_pieces, uint64_t nbytes) {
    memset(b, 0, sizeof(*b));
    csn_expert_piece *piece = b->pieces;
    for (uint32_t l = 0; l < BANK_LAYERS; l++) {
        const char *path = bank_path(l);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        uint64_t at = 0;
        for (uint32_t x = 0; x < BANK_EXPERTS; x++) {
            for (uint32_t p = 0; p < n_pieces; p++, piece++) {
                uint64_t gap = n_pieces == 1
                                   ? (CSN_DIRECT_ALIGN - at % CSN_DIRECT_ALIGN) % CSN_DIRECT_ALIGN
                                   : 64;
                for (uint64_t i = 0; i < gap; i++) {
                    (void)fputc(0xEE, f);
                }
                at += gap;
                *piece = (csn_expert_piece){l, at, nbytes + p};
                bank_write_piece(f, l, x, p, nbytes + p);
                at += nbytes + p;
            }
        }
        assert_int_equal(fclose(f), 0);
        caisson_error err;
        ASSERT_OK(csn_fs_open(fs, path, CSN_OPEN_READ, &b->files[l], &err), &err);
        b->n_experts[l] = BANK_EXPERTS;
        b->layer_ids[l] = l + 1; /* layer 0 of the model is dense */
    }
    b->map = (csn_expert_map){.files = b->files,
                              .n_files = BANK_LAYERS,
                              .n_layers = BANK_LAYERS,
                              .n_experts = b->n_experts,
                              .layer_ids = b->layer_ids,
                              .n_pieces = n_pieces,
                              .pieces = b->pieces};
}

static inline void bank_done(expert_bank *b) {
    for (uint32_t l = 0; l < BANK_LAYERS; l++) {
        csn_file_close(b->files[l]);
        (void)unlink(bank_path(l));
    }
}

static inline uint64_t bank_slot_bytes(const expert_bank *b) {
    uint64_t bytes = 0;
    caisson_error err;
    ASSERT_OK(csn_expert_min_cache(&b->map, 1, &bytes, &err), &err);
    return bytes / 4;
}

/* A store of so many slots. */
static inline csn_experts *bank_store(const expert_bank *b, uint32_t n_slots, csn_expert_io io) {
    csn_experts *e = NULL;
    caisson_error err;
    csn_expert_options o = {.cache_bytes = n_slots * bank_slot_bytes(b), .io = io};
    ASSERT_OK(csn_experts_new(&b->map, &o, &e, &err), &err);
    return e;
}

static inline void bank_check(const expert_bank *b, uint32_t l, uint32_t x,
                              const uint8_t *const *pieces) {
    for (uint32_t p = 0; p < b->map.n_pieces; p++) {
        uint64_t n = b->pieces[(l * BANK_EXPERTS + x) * b->map.n_pieces + p].nbytes;
        uint8_t *want = bank_bytes(l, x, p, n);
        if (memcmp(pieces[p], want, n) != 0) {
            fail_msg("layer %u, expert %u, piece %u: wrong bytes", (unsigned)l, (unsigned)x,
                     (unsigned)p);
        }
        free(want);
    }
}

/* Takes a whole list, checks every byte, of the expert before too while it must still be good. */
static inline caisson_status bank_try(const expert_bank *b, csn_experts *e, uint32_t l,
                                      const uint32_t *ids, uint32_t n, caisson_error *err) {
    const uint8_t *pieces[2][BANK_MAX_PIECES];
    caisson_status status = CAISSON_OK;
    csn_experts_want(e, l, ids, n, NULL);
    for (uint32_t i = 0; i < n && status == CAISSON_OK; i++) {
        uint32_t id = UINT32_MAX;
        status = csn_experts_take(e, &id, pieces[i % 2], err);
        if (status == CAISSON_OK) {
            assert_int_equal(id, ids[i]);
            bank_check(b, l, id, pieces[i % 2]);
            if (i > 0) {
                bank_check(b, l, ids[i - 1], pieces[(i - 1) % 2]);
            }
        }
    }
    csn_experts_done(e);
    return status;
}

/* Until guesses, too, have been read. */
static inline void bank_wait(csn_experts *e) {
    for (bool is_reading = true; is_reading;) {
        pthread_mutex_lock(&e->mutex);
        is_reading = csn_experts_is_reading(e);
        pthread_mutex_unlock(&e->mutex);
        (void)usleep(is_reading ? 500 : 0);
    }
}

static inline void bank_use(const expert_bank *b, csn_experts *e, uint32_t l, const uint32_t *ids,
                            uint32_t n) {
    caisson_error err;
    ASSERT_OK(bank_try(b, e, l, ids, n, &err), &err);
}

#endif
