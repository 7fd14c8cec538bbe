/* SPDX-License-Identifier: Apache-2.0 */
/* Files made to hurt: the fuzz classes of the guide (user-pains, F1 to F10, F14), each as a small
 * file that must be refused with its code, without a large allocation and without a long wait. */
#include "unit/test.h"

#include "base/clock.h"
#include "caisson/limits.h"
#include "support/cmf_edit.h"
#include "support/cmf_golden.h"
#include "fault/faulty_fs.h"

static memory_fs fs;

static int setup(void **state) {
    (void)state;
    memory_fs_init(&fs);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    memory_fs_done(&fs);
    return fs.n_open;
}

static cmf_outcome try_records(const cmf_record *r, size_t n, uint64_t data_len) {
    cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), r, n, data_len);
    cmf_outcome o = cmf_try(&fs, b);
    free(b.p);
    return o;
}

static cmf_outcome try_header(const char *header) {
    cmf_bytes b = cmf_build(csn_str_from(header), NULL, 0, 0);
    cmf_outcome o = cmf_try(&fs, b);
    free(b.p);
    return o;
}

#define ASSERT_REFUSED(outcome, code)                                                              \
    do {                                                                                           \
        cmf_outcome o_ = (outcome);                                                                \
        assert_string_equal(caisson_status_name(o_.status), caisson_status_name(code));            \
    } while (0)

static void the_builder_makes_sound_files(void **state) {
    (void)state;
    const cmf_record r[] = {{"a", 0, 1, 1, {8}, 0, 16}, {"b", 0, 3, 2, {2, 8}, 64, 20}};
    cmf_outcome o = try_records(r, 2, 84);
    ASSERT_OK(o.status, &o.err);
    assert_int_equal(o.n_faults, 0);
    o = try_header(CMF_EDIT_HEADER);
    ASSERT_OK(o.status, &o.err);
}

static void shapes_that_wrap_are_refused(void **state) { /* F1 */
    (void)state;
    const uint32_t big = UINT32_C(1) << 31;
    const cmf_record files[] = {
        {"w", 0, 0, 6, {big, big, 4, 1, 1, 1}, 0, 0}, /* product 2^64: wraps to 0 */
        {"w", 0, 0, 3, {big, big, 2}, 0, 0},          /* 2^63 elements, bytes wrap to 0 */
        {"w", 0, 0, 3, {big, big, 1}, 0, 0},          /* 2^62 elements, bytes wrap to 0 */
        {"w", 0, 1, 6, {UINT32_MAX, UINT32_MAX, 1, 1, 1, 1}, 0, 2},
        {"w", 0, 3, 3, {big, big, 2}, 0, 0}, /* rows x cols + 2 rows */
        {"w", 0, 3, 2, {UINT32_MAX, UINT32_MAX}, 0, 1},
        {"w", 0, 4, 3, {big, big, 4}, 0, 0},
        {"w", 0, 9, 3, {1, big, big}, 0, 4},
        {"w", 0, 11, 3, {big, big, 3}, 0, 18},
        {"w", 0, 12, 3, {big, big, 3}, 0, 6},
        {"w", 0, 15, 2, {UINT32_MAX, 0xffffffe0}, 0, 20},
        {"w", 0, 16, 2, {UINT32_MAX, 0xffffffe0}, 0, 20},
        {"w", 0, 8, 2, {UINT32_MAX, 0xffffffe0}, 0, 20}, /* rows alone pass the payload */
        {"w", 0, 10, 2, {UINT32_MAX, 0xffffffe0}, 0, 20},
        {"w", 0, 10, 2, {0, 32}, 0, 20},
        {"w", 0, 8, 3, {2, 2, 32}, 0, 64},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        cmf_outcome o = try_records(&files[i], 1, 4096);
        if (o.status != CAISSON_E_BOUNDS) {
            fail_msg("file %zu: %s", i, caisson_status_name(o.status));
        }
        assert_string_equal(o.err.tensor, "w");
    }
}

static void zeros_are_handled(void **state) { /* F4 */
    (void)state;
    const cmf_record ok[] = {{"a", 0, 0, 1, {0}, 0, 0},     {"b", 0, 15, 2, {0, 32}, 0, 0},
                             {"c", 0, 3, 2, {0, 7}, 0, 0},  {"d", 0, 9, 2, {0, 7}, 0, 0},
                             {"e", 0, 4, 2, {7, 0}, 0, 0},  {"", 0, 1, 0, {0}, 64, 2},
                             {"f", 0, 8, 2, {0, 32}, 0, 0}, {"g", 0, 3, 2, {3, 0}, 128, 6}};
    cmf_outcome o = try_records(ok, sizeof(ok) / sizeof(ok[0]), 134);
    ASSERT_OK(o.status, &o.err);
    assert_int_equal(o.n_faults, 0);
}

static void alignment_near_the_top_does_not_wrap(void **state) { /* F3 */
    (void)state;
    const cmf_record files[] = {
        {"w", 0, 1, 1, {8}, UINT64_MAX - 63, 16},
        {"w", 0, 1, 1, {8}, UINT64_MAX - 15, 16}, /* not a multiple of 64 either */
        {"w", 0, 1, 1, {8}, 0, UINT64_MAX},
        {"w", 0, 1, 1, {8}, 64, UINT64_MAX - 63},
        {"w", 0, 1, 1, {8}, 1, 16},
        {"w", 0, 1, 1, {8}, 4096 - 8, 16},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        ASSERT_REFUSED(try_records(&files[i], 1, 4096), CAISSON_E_BOUNDS);
    }
}

static void kinds_outside_their_range_are_refused(void **state) { /* F5, F6 */
    (void)state;
    for (unsigned id = 0; id < 256; id++) {
        const cmf_record r = {"w", 0, id, 1, {64}, 0, 1};
        cmf_outcome o = try_records(&r, 1, 4096);
        assert_true(id <= 16 ? o.status == CAISSON_OK || o.status == CAISSON_E_BOUNDS
                             : o.status == CAISSON_E_PARSE);
    }
    for (unsigned n_dims = 7; n_dims < 256; n_dims += 31) {
        const cmf_record r = {"w", 0, 1, n_dims, {1, 1, 1, 1, 1, 1}, 0, 2};
        ASSERT_REFUSED(try_records(&r, 1, 4096), CAISSON_E_PARSE);
    }
}

static void overlaps_are_refused(void **state) { /* F9 */
    (void)state;
    const cmf_record part[] = {{"a", 0, 1, 1, {64}, 0, 128}, {"b", 0, 1, 1, {64}, 64, 128}};
    const cmf_record inside[] = {{"a", 0, 1, 1, {64}, 0, 128}, {"b", 0, 1, 1, {32}, 0, 64}};
    const cmf_record same[] = {
        {"a", 0, 1, 1, {64}, 0, 128}, {"b", 0, 1, 2, {8, 8}, 0, 128}, {"c", 0, 1, 1, {64}, 0, 128}};
    const cmf_record later[] = {{"b", 0, 1, 1, {64}, 128, 128}, {"a", 0, 1, 1, {64}, 0, 128}};
    ASSERT_REFUSED(try_records(part, 2, 192), CAISSON_E_BOUNDS);
    ASSERT_REFUSED(try_records(inside, 2, 128), CAISSON_E_BOUNDS);
    cmf_outcome o = try_records(same, 3, 128);
    ASSERT_OK(o.status, &o.err); /* one identical payload under several names */
    o = try_records(later, 2, 256);
    ASSERT_OK(o.status, &o.err); /* any order */
}

/* Sections over each other, over payloads, over the envelope; the free tail of the blob. */
static void sections_may_not_overlap(void **state) {
    (void)state;
    const cmf_record r = {"a", 0, 1, 1, {64}, 0, 128};
    cmf_bytes good = cmf_build(CSN_STR(CMF_EDIT_HEADER), &r, 1, 128);
    size_t data = (size_t)cmf_u64(good, 0x30);
    const struct {
        uint64_t off, len;
        caisson_status status;
    } vocab[] = {
        {data + 64, 16, CAISSON_E_BOUNDS}, /* in a payload */
        {64, 16, CAISSON_E_BOUNDS},        /* in the envelope */
        {130, 16, CAISSON_E_BOUNDS},       /* in the header */
        {cmf_u64(good, 0x20), 16, CAISSON_E_BOUNDS},
        {data - 16, 16, CAISSON_OK}, /* in the gap before the blob */
        {data - 16, 17, CAISSON_E_BOUNDS},
        {data + 128, 0, CAISSON_OK}, /* empty */
    };
    for (size_t i = 0; i < sizeof(vocab) / sizeof(vocab[0]); i++) {
        cmf_bytes b = cmf_copy(good);
        cmf_put(b, 0x50, 8, vocab[i].off);
        cmf_put(b, 0x58, 8, vocab[i].len);
        ASSERT_REFUSED(cmf_try(&fs, b), vocab[i].status);
        free(b.p);
    }
    free(good.p);
    /* vocab between two payloads is what append makes; in the tail of the blob it is not */
    const cmf_record two[] = {{"a", 0, 1, 1, {32}, 0, 64}, {"b", 0, 1, 1, {32}, 128, 64}};
    for (int i = 0; i < 2; i++) {
        cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), two, (size_t)(2 - i), 192);
        cmf_put(b, 0x50, 8, cmf_u64(b, 0x30) + 64);
        cmf_put(b, 0x58, 8, 64);
        ASSERT_REFUSED(cmf_try(&fs, b), i == 0 ? CAISSON_OK : CAISSON_E_BOUNDS);
        free(b.p);
    }
}

static void duplicates_are_refused_whatever_the_hash(void **state) {
    (void)state;
    const cmf_record twice[] = {{"same", 0, 1, 1, {8}, 0, 16},
                                {"x", 0, 1, 1, {8}, 64, 16},
                                {"same", 0, 1, 1, {8}, 128, 16}};
    const cmf_record empty[] = {{"", 0, 1, 1, {8}, 0, 16}, {"", 0, 1, 1, {8}, 64, 16}};
    /* hash64 does not see the order of words: these collide, and are not the same */
    const cmf_record collide[] = {{"aaaaaaaabbbbbbbb", 0, 1, 1, {8}, 0, 16},
                                  {"bbbbbbbbaaaaaaaa", 0, 1, 1, {8}, 64, 16}};
    ASSERT_REFUSED(try_records(twice, 3, 144), CAISSON_E_PARSE);
    ASSERT_REFUSED(try_records(empty, 2, 80), CAISSON_E_PARSE);
    cmf_outcome o = try_records(collide, 2, 80);
    ASSERT_OK(o.status, &o.err);
}

/* Names of four words in every order: hash64 gives one value for all. The index must not become
 * quadratic (F7). */
static void names_made_to_collide_cost_little(void **state) {
    (void)state;
    enum { WORDS = 8, N = 40320 }; /* 8! */
    cmf_record *r = calloc(N, sizeof(*r));
    char(*names)[WORDS * 8] = calloc(N, sizeof(*names));
    assert_non_null(r);
    assert_non_null(names);
    for (size_t i = 0; i < N; i++) {
        size_t rest = i;
        unsigned left[WORDS] = {0, 1, 2, 3, 4, 5, 6, 7};
        for (size_t k = 0; k < WORDS; k++) {
            size_t pick = rest % (WORDS - k);
            rest /= WORDS - k;
            memset(names[i] + 8 * k, (int)('a' + left[pick]), 8);
            memmove(left + pick, left + pick + 1, (WORDS - k - 1 - pick) * sizeof(left[0]));
        }
        r[i] = (cmf_record){names[i], WORDS * 8, 1, 1, {1}, 64 * i, 2};
    }
    uint64_t t0 = csn_now_ns();
    cmf_outcome o = try_records(r, N, 64 * (N - 1) + 2);
    uint64_t ms = (csn_now_ns() - t0) / 1000000;
    ASSERT_OK(o.status, &o.err);
    if (ms > 20000) { /* quadratic would be minutes, with sanitizers too */
        fail_msg("took %d ms", (int)ms);
    }
    free(r);
    free(names);
}

/* Numbers that a small file merely claims: no memory in proportion (F7). */
static void claimed_counts_allocate_nothing(void **state) {
    (void)state;
    const cmf_record r = {"a", 0, 1, 1, {8}, 0, 16};
    const uint64_t counts[] = {
        2, 1000, UINT64_C(1) << 20, UINT64_C(1) << 40, UINT64_C(0x0492492492492493), UINT64_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), &r, 1, 16);
        cmf_put(b, (size_t)cmf_u64(b, 0x20), 8, counts[i]);
        cmf_rehash(b);
        ASSERT_REFUSED(cmf_try(&fs, b), CAISSON_E_PARSE);
        free(b.p);
    }
    /* 2^20 + 1 tensors that are really there: past the limit of the table */
    size_t n = CAISSON_MAX_TENSORS + 1;
    cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), NULL, 0, 0);
    size_t dir = (size_t)cmf_u64(b, 0x20);
    b.p = realloc(b.p, dir + 16 + 56 * n);
    assert_non_null(b.p);
    memset(b.p + dir, 0, 16 + 56 * n);
    b.len = dir + 16 + 56 * n;
    cmf_put(b, 0x28, 8, 16 + 56 * n);
    cmf_put(b, dir, 8, n);
    cmf_put(b, dir + 8, 8, 16 + 56 * n);
    cmf_put(b, 0x78, 8, 0);
    ASSERT_REFUSED(cmf_try(&fs, b), CAISSON_E_LIMIT);
    free(b.p);
}

/* Records that all point at one long name: the sum is bounded, not just the pool. */
static void shared_name_bytes_are_bounded(void **state) {
    (void)state;
    enum { N = 5000, NAME = 65535 };
    cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), NULL, 0, 0);
    size_t dir = (size_t)cmf_u64(b, 0x20);
    size_t dir_len = 16 + 56 * N + NAME;
    b.p = realloc(b.p, dir + dir_len);
    assert_non_null(b.p);
    b.len = dir + dir_len;
    memset(b.p + dir, 0, dir_len);
    memset(b.p + dir + 16 + 56 * N, 'n', NAME);
    cmf_put(b, 0x28, 8, dir_len);
    cmf_put(b, dir, 8, N);
    cmf_put(b, dir + 8, 8, 16 + 56 * N);
    for (size_t i = 0; i < N; i++) {
        cmf_put(b, dir + 16 + 56 * i + 4, 2, NAME - i % 2);
    }
    cmf_put(b, 0x78, 8, 0);
    ASSERT_REFUSED(cmf_try(&fs, b), CAISSON_E_LIMIT);
    free(b.p);
}

static void nesting_is_limited(void **state) { /* F8 */
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(2 * DEPTH + 64);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "{\"x\":");
    memset(text + n, '[', DEPTH);
    memset(text + n + DEPTH, ']', DEPTH);
    strcpy(text + n + 2 * DEPTH, "}");
    ASSERT_REFUSED(try_header(text), CAISSON_E_LIMIT);
    free(text);
}

static void many_keys_cost_little(void **state) { /* F7 */
    (void)state;
    csn_buf b = CSN_BUF_INIT(1 << 26);
    caisson_error err;
    ASSERT_OK(csn_buf_append(&b, CMF_EDIT_HEADER, sizeof(CMF_EDIT_HEADER) - 2, &err), &err);
    for (int i = 0; i < 300000; i++) {
        ASSERT_OK(csn_buf_printf(&b, &err, ",\"k%d\":%d", i, i), &err);
    }
    ASSERT_OK(csn_buf_char(&b, '}', &err), &err);
    uint64_t t0 = csn_now_ns();
    cmf_outcome o = try_header(b.ptr);
    ASSERT_OK(o.status, &o.err);
    assert_true((csn_now_ns() - t0) / 1000000 < 20000);
    csn_buf_free(&b);
}

/* A header text with one part replaced. */
static const char *with(const char *from, const char *to) {
    static char text[4096];
    const char *at = strstr(CMF_EDIT_HEADER, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - CMF_EDIT_HEADER), CMF_EDIT_HEADER, to,
             at + strlen(from));
    return text;
}

static void header_values_out_of_range_are_refused(void **state) { /* F2, F4, F5, F6 */
    (void)state;
    static const struct {
        const char *from, *to;
        caisson_status status;
    } cases[] = {
        {"\"hidden_size\":8", "\"hidden_size\":0", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":-8", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":8.0", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":\"8\"", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":2147483648", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":4294967301", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":18446744073709551616", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":null", CAISSON_E_PARSE},
        {"\"hidden_size\":8", "\"hidden_size\":8,\"hidden_size\":8", CAISSON_E_PARSE},
        {"\"num_layers\":1", "\"num_layers\":2000000000", CAISSON_E_LIMIT},
        {"\"num_layers\":1", "\"num_layers\":1000,\"num_loops\":100000", CAISSON_E_LIMIT},
        {"\"num_layers\":1", "\"num_layers\":1,\"num_loops\":0", CAISSON_E_PARSE},
        {"\"head_dim\":8", "\"head_dim\":7", CAISSON_E_PARSE},
        {"\"num_kv_heads\":1", "\"num_kv_heads\":2", CAISSON_E_PARSE},
        {"\"num_kv_heads\":1", "\"num_kv_heads\":0", CAISSON_E_PARSE},
        {"FullAttention", "HalfAttention", CAISSON_E_PARSE},
        {"[\"FullAttention\"]", "{}", CAISSON_E_PARSE},
        {"[\"FullAttention\"]", "[1]", CAISSON_E_PARSE},
        {"1e-06", "-1e-06", CAISSON_E_PARSE},
        {"1e-06", "\"1e-06\"", CAISSON_E_PARSE},
        {"1e-06", "1e999", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":\"2\"", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":7", CAISSON_OK}, /* the JSON's version is not checked */
        {"\"version\":2", "\"format\":1,\"version\":2", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"skills\":null", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"skills\":[{}]", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"skills\":[{\"id\":\"a\",\"layers\":[\"x\"]}]",
         CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"shard\":{\"no\":1}", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"shard\":null", CAISSON_OK},
        {"\"version\":2", "\"version\":2,\"tokenizer_config\":{\"eos_token_ids\":null}",
         CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"tokenizer_config\":{\"eos_token_ids\":[-1]}",
         CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"tokenizer_config\":{\"eos_token_ids\":[\"x\"]}",
         CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"tokenizer_config\":{\"eos_token_ids\":[2147483648]}",
         CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"tokenizer_config\":{\"bos_token_id\":4294967295}",
         CAISSON_E_PARSE},
        {"\"version\":2",
         "\"version\":2,\"tokenizer_config\":{\"special_tokens_map\":{\"eos_token\":5}}",
         CAISSON_E_PARSE},
        {"\"version\":2",
         "\"version\":2,\"tokenizer_config\":{\"special_tokens_map\":{\"other\":5}}", CAISSON_OK},
        {"\"version\":2", "\"version\":2,\"calibration\":{\"temperature\":1e300}", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"section_hashes\":{\"vocab\":\"12\"}", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"section_hashes\":{\"index\":\"0\"}", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"section_hashes\":{\"masks\":7}", CAISSON_E_PARSE},
        {"\"version\":2", "\"version\":2,\"section_hashes\":{\"masks\":null}", CAISSON_OK},
        {"\"quant_type\":\"F16\"", "\"quant_type\":\"f16\"", CAISSON_E_PARSE},
        {"\"quant_type\":\"F16\"", "\"quant_type\":\"F16\",\"quant_type\":\"F16\"",
         CAISSON_E_PARSE},
        {"\"quant_type\":\"F16\"", "\"quant_type\":\"F16\",\"new\":1,\"new\":2", CAISSON_OK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cmf_outcome o = try_header(with(cases[i].from, cases[i].to));
        if (o.status != cases[i].status) {
            fail_msg("%s -> %s: %s", cases[i].from, cases[i].to, caisson_status_name(o.status));
        }
        if (o.status != CAISSON_OK) {
            assert_string_equal(o.err.section, "header");
        }
    }
}

static void a_hash_of_an_empty_section_must_be_zero(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *text =
            with("\"version\":2", i == 0 ? "\"version\":2,\"section_hashes\":{\"vocab\":\"00\"}"
                                         : "\"version\":2,\"section_hashes\":{\"vocab\":\"01\"}");
        cmf_bytes b = cmf_build(csn_str_from(text), NULL, 0, 0);
        cmf_put(b, 0x50, 8, b.len); /* empty, not absent */
        ASSERT_REFUSED(cmf_try(&fs, b), i == 0 ? CAISSON_OK : CAISSON_E_PARSE);
        free(b.p);
    }
}

static void versions_and_bits_are_told_apart(void **state) { /* F14 */
    (void)state;
    cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), NULL, 0, 0);
    for (unsigned bit = 0; bit < 32; bit++) {
        cmf_put(b, 12, 4, 1 | UINT64_C(1) << bit);
        cmf_outcome o = cmf_try(&fs, b);
        bool is_known = (0x67 >> bit & 1) != 0 && bit < 8;
        assert_int_equal(o.status, is_known ? CAISSON_OK : CAISSON_E_FEATURE);
        if (bit == 3) {
            assert_non_null(strstr(o.err.what, "DELTA_MASKS"));
        } else if (bit == 4) {
            assert_non_null(strstr(o.err.what, "HOT_PACKS"));
        }
    }
    cmf_put(b, 12, 4, 1);
    static const uint32_t versions[] = {0, 1, 3, 0x02000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        cmf_put(b, 4, 4, versions[i]);
        ASSERT_REFUSED(cmf_try(&fs, b), CAISSON_E_VERSION);
    }
    cmf_put(b, 4, 4, 2);
    b.p[3] = 2;
    ASSERT_REFUSED(cmf_try(&fs, b), CAISSON_E_MAGIC);
    free(b.p);
}

static void names_are_bytes_and_never_paths(void **state) { /* F10 */
    (void)state;
    const cmf_record r[] = {{"../../etc/passwd", 0, 1, 1, {8}, 0, 16},
                            {"a\0b", 3, 1, 1, {8}, 64, 16},
                            {"C:\\x\n\x1b[31m", 0, 1, 1, {8}, 128, 16}};
    csn_cmf *c = NULL;
    caisson_error err;
    cmf_bytes b = cmf_build(CSN_STR(CMF_EDIT_HEADER), r, 3, 144);
    ASSERT_OK(cmf_open_bytes(&fs, b, &c, &err), &err);
    assert_non_null(csn_directory_find(&c->dir, CSN_STR("../../etc/passwd")));
    assert_non_null(csn_directory_find(&c->dir, csn_str_make("a\0b", 3)));
    assert_null(csn_directory_find(&c->dir, CSN_STR("a")));
    csn_cmf_close(c);
    free(b.p);
}

static void a_missing_file_or_a_directory_is_io(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    ASSERT_STATUS(csn_cmf_open(csn_fs_os(), "/nonexistent/m.cmf", &c, &err), CAISSON_E_IO);
    assert_string_equal(err.file, "/nonexistent/m.cmf");
    assert_true(err.sys_errno != 0);
    ASSERT_STATUS(csn_cmf_open(csn_fs_os(), CSN_SOURCE_DIR, &c, &err), CAISSON_E_IO);
}

/* ---- faults of the machine ---- */

static void every_failed_allocation_of_open_is_told(void **state) {
    (void)state;
    static const char *const files[] = {"files/tiny-moe.cmf", "files/tiny-index.cmf",
                                        "files/tiny-all-dtypes.cmf"};
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        char path[512];
        snprintf(path, sizeof(path), CMF_GOLDEN "%s", files[f]);
        for (int64_t n = 0;; n++) {
            csn_cmf *c = NULL;
            caisson_error err;
            uint64_t n_faults = 0;
            assert_true(n < 1000);
            csn_alloc_fail_after(n);
            caisson_status status = csn_cmf_open(csn_fs_os(), path, &c, &err);
            if (status == CAISSON_OK) {
                status = csn_cmf_verify(c, NULL, NULL, cmf_ignore_fault, NULL, &n_faults, &err);
            }
            csn_alloc_fail_after(-1);
            csn_cmf_close(c);
            if (status == CAISSON_OK) {
                assert_true(n > 5);
                break;
            }
            assert_int_equal(status, CAISSON_E_NOMEM);
        }
    }
}

static void every_failed_read_is_told(void **state) {
    (void)state;
    const char *path = CMF_GOLDEN "files/tiny-all-dtypes.cmf";
    for (int64_t n = 0;; n++) {
        faulty_fs f;
        csn_cmf *c = NULL;
        caisson_error err;
        assert_true(n < 1000);
        faulty_fs_init(&f, csn_fs_os());
        f.fail_at = n;
        caisson_status status = csn_cmf_open(&f.base, path, &c, &err);
        f.fail_at = -1;
        csn_cmf_close(c);
        assert_int_equal(f.n_open, 0);
        if (status == CAISSON_OK) {
            assert_true(n >= 4);
            break;
        }
        assert_int_equal(status, CAISSON_E_IO);
        assert_int_equal(err.sys_errno, EIO);
        assert_string_equal(err.file, path);
    }
}

static void keep_fault(void *ctx, const caisson_error *fault) {
    *(caisson_error *)ctx = *fault;
}

static void a_read_error_in_verify_is_a_fault_and_goes_on(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    caisson_error fault;
    faulty_fs f;
    faulty_fs_init(&f, csn_fs_os());
    ASSERT_OK(csn_cmf_open(&f.base, CMF_GOLDEN "files/tiny-f32.cmf", &c, &err), &err);
    uint64_t n_faults = 0;
    for (uint32_t i = 0; i < c->dir.n; i++) { /* side by side, so read with its neighbours */
        const csn_tensor *t = &c->dir.tensors[i];
        f.bad_from = t->offset + t->nbytes - 1;
        f.n_bad = 1;
        ASSERT_OK(csn_cmf_verify(c, NULL, NULL, keep_fault, &fault, &n_faults, &err), &err);
        assert_int_equal(n_faults, 1);
        assert_int_equal(fault.code, CAISSON_E_IO);
        assert_int_equal(fault.sys_errno, EIO);
        assert_true(fault.offset == t->offset && fault.n_bytes == t->nbytes);
        assert_true(csn_str_eq(csn_str_from(fault.tensor), t->name));
    }
    f.n_bad = 0;
    f.kinds = FAULTY_READ;
    f.n = 0;
    f.fail_at = 0;
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, cmf_ignore_fault, NULL, &n_faults, &err), &err);
    assert_int_equal(n_faults, 0); /* it failed once, and then gave the right bytes */
    f.fail_at = 0;
    f.stays_broken = true; /* the disk is gone: every section and tensor is told */
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, cmf_ignore_fault, NULL, &n_faults, &err), &err);
    assert_int_equal(n_faults, c->dir.n + 3); /* header, directory, vocab */
    csn_cmf_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_builder_makes_sound_files),
        {"F1 shapes that wrap are refused (CMF 1.2)", shapes_that_wrap_are_refused, NULL, NULL,
         NULL},
        {"F3 alignment near the top does not wrap (CMF 3)", alignment_near_the_top_does_not_wrap,
         NULL, NULL, NULL},
        {"F4 zeros are handled (CMF 3)", zeros_are_handled, NULL, NULL, NULL},
        {"F5 F6 kinds outside their range are refused (CMF 3.1)",
         kinds_outside_their_range_are_refused, NULL, NULL, NULL},
        {"F9 overlapping payloads are refused (CMF 4)", overlaps_are_refused, NULL, NULL, NULL},
        {"F9 sections may not overlap (CMF 1)", sections_may_not_overlap, NULL, NULL, NULL},
        {"duplicate names are refused (CMF 3)", duplicates_are_refused_whatever_the_hash, NULL,
         NULL, NULL},
        {"F7 names made to collide cost little", names_made_to_collide_cost_little, NULL, NULL,
         NULL},
        {"F7 claimed counts allocate nothing (CMF 3)", claimed_counts_allocate_nothing, NULL, NULL,
         NULL},
        {"F7 shared name bytes are bounded", shared_name_bytes_are_bounded, NULL, NULL, NULL},
        {"F8 nesting is limited", nesting_is_limited, NULL, NULL, NULL},
        {"F7 many keys cost little", many_keys_cost_little, NULL, NULL, NULL},
        {"F2 F6 header values out of range are refused (CMF 2)",
         header_values_out_of_range_are_refused, NULL, NULL, NULL},
        {"a hash of an empty section must be zero (CMF 8.1)",
         a_hash_of_an_empty_section_must_be_zero, NULL, NULL, NULL},
        {"F14 versions and feature bits (CMF 1.1)", versions_and_bits_are_told_apart, NULL, NULL,
         NULL},
        {"F10 names are bytes and never paths (CMF 3)", names_are_bytes_and_never_paths, NULL, NULL,
         NULL},
        cmocka_unit_test(a_missing_file_or_a_directory_is_io),
        cmocka_unit_test(every_failed_allocation_of_open_is_told),
        cmocka_unit_test(every_failed_read_is_told),
        {"F17 a read error in verify is a fault and goes on",
         a_read_error_in_verify_is_a_fault_and_goes_on, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
