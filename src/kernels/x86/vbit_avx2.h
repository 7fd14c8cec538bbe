/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of 3 to 6 bits become bytes, the same five operations for every width.
 *
 * A group of 32 codes is 4 * bits bytes, and each 16 codes begin on a byte. One load of 32 bytes is
 * placed so that the second 16 codes begin in its upper half; a shuffle gives each pair of codes
 * the two bytes that hold it, as a big-endian word; the first code of a pair is multiplied down
 * into the low byte, the second up into the high one.
 *
 * So codes are read with up to 10 bytes in front of them and 10 behind (VBIT_AROUND), which
 * must be memory: in front lie widths and scales of at least four rows, see vbit_safe for behind.
 */
#ifndef CSN_KERNELS_X86_VBIT_AVX2_H
#define CSN_KERNELS_X86_VBIT_AVX2_H

#include "kernels/x86/i8_avx2.h"
#include "quant/vbit.h"

enum { VBIT_AROUND = 10, VBIT_MIN_ROWS = 4 };

struct vbit_unpack {
    uint8_t order[32];
    uint16_t mask[2][16], factor[2][16]; /* of the first and the second code of each pair */
};

/* Pair j of 8, of width b: begins at bit 2 b j. FROM is the byte its word begins with and AT its
 * bit in there; where the second code would have to move down, the word begins a byte earlier. */
#define VBIT_EARLY(b, j) ((2 * (b) * (j)) % 8 + 2 * (b) < 8)
#define VBIT_FROM(b, j) (2 * (b) * (j) / 8 - VBIT_EARLY(b, j))
#define VBIT_AT(b, j) ((2 * (b) * (j)) % 8 + 8 * VBIT_EARLY(b, j))
/* An index of vpshufb; bytes outside of the half are never used: zero. */
#define VBIT_INDEX(i) ((uint8_t)((i) < 0 || (i) > 15 ? 0x80 : (i)))
#define VBIT_LOW(b, j)                                                                             \
    VBIT_INDEX(16 - 2 * (b) + VBIT_FROM(b, j) + 1), VBIT_INDEX(16 - 2 * (b) + VBIT_FROM(b, j))
#define VBIT_HIGH(b, j) VBIT_INDEX(VBIT_FROM(b, j) + 1), VBIT_INDEX(VBIT_FROM(b, j))
#define VBIT_MASK0(b, j) (uint16_t)(((1 << (b)) - 1) << (16 - (b)-VBIT_AT(b, j)))
#define VBIT_MASK1(b, j) (uint16_t)(((1 << (b)) - 1) << (16 - 2 * (b)-VBIT_AT(b, j)))
#define VBIT_FACTOR0(b, j) (uint16_t)(1 << ((b) + VBIT_AT(b, j)))
#define VBIT_FACTOR1(b, j) (uint16_t)(1 << (2 * (b) + VBIT_AT(b, j) - 8))
#define VBIT_8(M, b) M(b, 0), M(b, 1), M(b, 2), M(b, 3), M(b, 4), M(b, 5), M(b, 6), M(b, 7)
#define VBIT_16(M, b)                                                                              \
    { VBIT_8(M, b), VBIT_8(M, b) }
#define VBIT_UNPACK(b)                                                                             \
    {                                                                                              \
        .order = {VBIT_8(VBIT_LOW, b), VBIT_8(VBIT_HIGH, b)},                                      \
        .mask = {VBIT_16(VBIT_MASK0, b), VBIT_16(VBIT_MASK1, b)}, .factor = {                      \
            VBIT_16(VBIT_FACTOR0, b),                                                              \
            VBIT_16(VBIT_FACTOR1, b)                                                               \
        }                                                                                          \
    }

static const struct vbit_unpack vbit_unpack_of[7] = {
    [3] = VBIT_UNPACK(3), [4] = VBIT_UNPACK(4), [5] = VBIT_UNPACK(5), [6] = VBIT_UNPACK(6)};

/* The 32 codes of the group at p, in order; bits 3 to 6. */
CSN_INLINE __m256i vbit_codes(const uint8_t *p, unsigned bits) {
    const struct vbit_unpack *u = &vbit_unpack_of[bits];
    __m256i words = _mm256_shuffle_epi8(csn_load256(p + 2 * bits - 16), csn_load256(u->order));
    __m256i first = _mm256_mulhi_epu16(_mm256_and_si256(words, csn_load256(u->mask[0])),
                                       csn_load256(u->factor[0]));
    __m256i second = _mm256_mullo_epi16(_mm256_and_si256(words, csn_load256(u->mask[1])),
                                        csn_load256(u->factor[1]));
    return _mm256_or_si256(first, second);
}

/* Where to read n_bytes of codes at p, and a group's worth behind them, from: p itself, or near the
 * payload's end a copy. */
enum { VBIT_ROOM = 16 + 8 * 32 + 32 };
CSN_INLINE const uint8_t *vbit_safe(const csn_matrix *w, const uint8_t *p, uint64_t n_bytes,
                                    uint8_t room[VBIT_ROOM]) {
    uint64_t left = (uint64_t)(w->data + w->nbytes - p);
    if (__builtin_expect(n_bytes + VBIT_AROUND <= left, 1)) {
        return p;
    }
    memset(room, 0, VBIT_ROOM);
    memcpy(room + 16, p, left < n_bytes ? left : n_bytes);
    return room + 16;
}

#endif
