/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors: tests/golden/base/hash64.json, made with the reference (shared data of the project). */
#include "unit/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/hash64.h"
#include "base/hash64_fold.h"
#include "base/io.h"
#include "base/json.h"

static size_t unhex(csn_str hex, uint8_t *out) {
    for (size_t i = 0; i < hex.len / 2; i++) {
        unsigned v = 0;
        assert_int_equal(sscanf(hex.ptr + 2 * i, "%2x", &v), 1);
        out[i] = (uint8_t)v;
    }
    return hex.len / 2;
}

/* SPEC("CMF 8") */
static void reference_vectors(void **state) {
    (void)state;
    caisson_error err;
    csn_buf text = {0};
    ASSERT_OK(csn_fs_read_all(csn_fs_os(), CSN_SOURCE_DIR "/tests/golden/base/hash64.json", 1 << 20,
                              &text, &err),
              &err);
    csn_json *doc;
    ASSERT_OK(csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &doc, &err), &err);
    size_t n = 0;
    for (csn_jiter it = csn_jval_iter(csn_json_root(doc)); csn_jiter_next(&it); n++) {
        csn_str in = {0};
        csn_str want = {0};
        assert_true(csn_jval_str(csn_jval_get(it.value, "hex"), &in));
        assert_true(csn_jval_str(csn_jval_get(it.value, "hash64"), &want));
        uint8_t bytes[256];
        size_t len = unhex(in, bytes);
        char got[17];
        snprintf(got, sizeof(got), "%016llx", (unsigned long long)csn_hash64(bytes, len));
        assert_string_equal(got, want.ptr);
        for (size_t cut = 0; cut <= len; cut++) { /* any cut, the same hash */
            csn_hash64_state s;
            csn_hash64_init(&s);
            csn_hash64_add(&s, bytes, cut);
            csn_hash64_add(&s, bytes + cut, len - cut);
            assert_true(csn_hash64_end(&s) == csn_hash64(bytes, len));
        }
    }
    assert_true(n >= 40);
    csn_json_free(doc);
    csn_buf_free(&text);
}

/* Pieces cut at words, in any order, and the same bytes as one call; long enough for every loop. */
static void pieces_join_to_the_whole(void **state) {
    (void)state;
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    }
    for (size_t len = 0; len < sizeof(bytes); len += 1 + len / 16) {
        for (size_t cut = 0; cut <= len; cut += 8) {
            uint64_t tail = csn_hash64_piece(bytes + cut, len - cut);
            uint64_t head = csn_hash64_piece(bytes, cut);
            assert_true(csn_hash64_join(tail ^ head, len, NULL) == csn_hash64(bytes, len));
        }
    }
    char hex[20];
    csn_hash64_hex(UINT64_C(0x00ddbea04ad81625), hex);
    assert_string_equal(hex, "00ddbea04ad81625");
    assert_true(csn_hash64("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16) == UINT64_C(0x00ddbea04ad81625));
}

/* The definition (CMF 8), word by word. */
static uint64_t fmix64(uint64_t x) {
    x ^= x >> 33;
    x *= UINT64_C(0xFF51AFD7ED558CCD);
    x ^= x >> 33;
    x *= UINT64_C(0xC4CEB9FE1A85EC53);
    x ^= x >> 33;
    return x;
}

static uint64_t by_definition(const uint8_t *p, size_t n) {
    uint64_t acc = 0;
    for (size_t i = 0; i * 8 < n; i++) {
        uint64_t w = 0;
        for (size_t b = 0; b < 8 && i * 8 + b < n; b++) {
            w |= (uint64_t)p[i * 8 + b] << (8 * b);
        }
        acc ^= fmix64(w) ^ i * UINT64_C(0x9E3779B97F4A7C15);
    }
    return fmix64(acc ^ n);
}

static uint32_t seed = 64;

static uint32_t next_random(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* Every length up to two rounds of any loop, then random lengths, at every alignment; with the
 * CPU's best instructions, with AVX2 at most and in plain C. The block ends where the bytes end:
 * the sanitizers see a read past it. */
static void any_length_and_alignment(void **state) {
    (void)state;
    print_message("seed %u\n", seed);
    for (size_t k = 0; k < 900; k++) {
        size_t n = k < 600 ? k : next_random() % 20000;
        size_t at = k % 9;
        uint8_t *block = malloc(at + n + 1);
        assert_non_null(block);
        uint8_t *p = block + 1 + at;
        for (size_t i = 0; i + at < n; i++) {
            p[i] = (uint8_t)next_random();
        }
        n = n > at ? n - at : 0;
        uint64_t want = by_definition(p, n);
        assert_true(csn_hash64(p, n) == want);
        uint32_t flags = csn_cpu_flags();
        csn_cpu_mask(CSN_CPU_FMA | CSN_CPU_AVX2);
        assert_true(csn_hash64(p, n) == want);
        csn_cpu_mask(0);
        assert_true(csn_hash64(p, n) == want);
        csn_cpu_mask(flags);
        free(block);
    }
}

#if defined(__x86_64__)
static void fold_as_plain_c(uint32_t needed, uint64_t (*fold)(const uint8_t *p, size_t n_words)) {
    if ((csn_cpu_flags() & needed) == 0) {
        print_message("this CPU cannot\n");
        skip();
    }
    enum { WORDS = 300 };
    static const uint64_t special[] = {
        0, UINT64_MAX, 1, UINT64_C(1) << 63, UINT64_C(0xffffffff), UINT64_C(0xffffffff00000000)};
    uint8_t bytes[8 * WORDS + 8];
    for (size_t n = 0; n <= WORDS; n++) {
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)next_random();
        }
        for (size_t i = 0; i < n; i += 1 + next_random() % 8) {
            memcpy(bytes + n % 8 + 8 * i, &special[next_random() % 6], 8);
        }
        assert_true(fold(bytes + n % 8, n) == csn_hash64_fold_ref(bytes + n % 8, n));
    }
}

static void avx2_folds_as_plain_c(void **state) {
    (void)state;
    fold_as_plain_c(CSN_CPU_AVX2, csn_hash64_fold_avx2);
}

static void avx512_folds_as_plain_c(void **state) {
    (void)state;
    fold_as_plain_c(CSN_CPU_VNNI512, csn_hash64_fold_avx512);
}
#endif

/* The salts of all words at once against one by one, up to 8 MiB of words. */
static void salts_add_up(void **state) {
    (void)state;
    csn_hash64_salts known = {{0}, {0}};
    uint64_t salts = 0;
    for (uint64_t n = 1; n <= UINT64_C(1) << 20; n++) {
        salts ^= (n - 1) * UINT64_C(0x9E3779B97F4A7C15);
        if (n % 4099 == 0 || (n & (n - 1)) == 0 || (n > 16000 && n < 16500)) {
            assert_true(csn_hash64_join(0, 8 * n, NULL) == fmix64(salts ^ 8 * n));
            for (int again = 0; again < 2; again++) {
                assert_true(csn_hash64_join(0, 8 * n, &known) == fmix64(salts ^ 8 * n));
            }
        }
    }
}

static void empty_is_zero(void **state) {
    (void)state;
    assert_true(csn_hash64("", 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_vectors),
        cmocka_unit_test(pieces_join_to_the_whole),
        {"any length and alignment (CMF 8)", any_length_and_alignment, NULL, NULL, NULL},
#if defined(__x86_64__)
        cmocka_unit_test(avx2_folds_as_plain_c),
        cmocka_unit_test(avx512_folds_as_plain_c),
#endif
        cmocka_unit_test(salts_add_up),
        cmocka_unit_test(empty_is_zero),
    };
    return cmocka_run_group_tests_name("base/hash64", tests, NULL, NULL);
}
