/* SPDX-License-Identifier: Apache-2.0 */
/* The second digests (docs/cmf.md, "Digests"): they find what hash64 cannot, and their header keys
 * are refused when they are not what they should be. */
#include "unit/test.h"

#include "support/cmf_edit.h"
#include "support/cmf_make.h"

static memory_fs fs;
static uint32_t seed = 3;

static int setup(void **state) {
    (void)state;
    memory_fs_init(&fs);
    print_message("seed %u\n", seed);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    int n_open = fs.n_open;
    memory_fs_done(&fs);
    return n_open;
}

static uint32_t below(uint32_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

/* A file of two small tensors and one of two and a half pieces, with a vocab section. */
static void make(void) {
    static const struct {
        const char *name;
        uint64_t n;
    } list[] = {{"a", 40}, {"big", 2 * CSN_DIGEST_PIECE + 100003}, {"b", 5000}};
    csn_cmf_plan_tensor t[3];
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    caisson_error err;
    for (int i = 0; i < 3; i++) {
        t[i] = (csn_cmf_plan_tensor){.name = csn_str_from(list[i].name),
                                     .dtype = csn_dtype_by_name(CSN_STR("u8")),
                                     .shape = {.n_dims = 1, .dim = {list[i].n}},
                                     .nbytes = list[i].n};
    }
    csn_cmf_plan plan = {.tensors = t, .n = 3, .head_bytes = sizeof(CMF_MAKE_HEADER)};
    ASSERT_OK(csn_cmf_writer_new(&fs.base, "m.cmf", &plan, &w, &n_done, &err), &err);
    for (int i = 0; i < 3; i++) {
        uint8_t *p = malloc(list[i].n);
        assert_non_null(p);
        for (uint64_t k = 0; k < list[i].n; k++) {
            p[k] = (uint8_t)below(256);
        }
        ASSERT_OK(csn_cmf_writer_tensor(w, p, list[i].n, &err), &err);
        free(p);
    }
    ASSERT_OK(csn_cmf_writer_finish(w, CSN_STR(CMF_MAKE_HEADER), CSN_STR(CMF_MAKE_VOCAB), &err),
              &err);
    csn_cmf_writer_close(w, false);
}

struct seen {
    uint64_t n;
    caisson_error fault;
};

static void keep(void *ctx, const caisson_error *fault) {
    struct seen *s = ctx;
    s->n++;
    s->fault = *fault;
}

static struct seen verify(csn_cmf *c, csn_pool *pool) {
    struct seen s = {0};
    uint64_t n = 0;
    caisson_error err;
    ASSERT_OK(csn_cmf_verify(c, pool, NULL, keep, &s, &n, &err), &err);
    assert_int_equal(n, s.n);
    return s;
}

static void assert_names(const struct seen *s, const csn_tensor *t) {
    assert_int_equal(s->n, 1);
    assert_int_equal(s->fault.code, CAISSON_E_HASH);
    assert_true(csn_str_is(t->name, s->fault.tensor));
    assert_int_equal(s->fault.offset, t->offset);
    assert_int_equal(s->fault.n_bytes, t->nbytes);
}

/* hash64 is blind to them (facts 5): 150 swaps here, 1,000 with bench/damage.c. */
static void swapped_words_are_found_and_named(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    csn_pool *pool = NULL;
    caisson_error err;
    make();
    ASSERT_OK(csn_pool_new(2, &pool, &err), &err);
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    uint8_t *bytes = memory_fs_find(&fs, "m.cmf")->bytes;
    assert_int_equal(verify(c, pool).n, 0);
    for (int k = 0; k < 150; k++) {
        const csn_tensor *t = &c->dir.tensors[k % 3];
        uint8_t *payload = bytes + t->offset;
        uint8_t old[2][8];
        uint8_t *x;
        uint8_t *y;
        do {
            x = payload + (uint64_t)below((uint32_t)(t->nbytes / 8)) * 8;
            y = payload + (uint64_t)below((uint32_t)(t->nbytes / 8)) * 8;
        } while (memcmp(x, y, 8) == 0);
        memcpy(old[0], x, 8);
        memcpy(old[1], y, 8);
        memcpy(x, old[1], 8);
        memcpy(y, old[0], 8);
        assert_true(csn_hash64(payload, t->nbytes) == t->hash);
        struct seen s = verify(c, pool);
        assert_names(&s, t);
        assert_non_null(strstr(s.fault.what, "digest"));
        s.n = 1;
        ASSERT_STATUS(csn_cmf_check_tensor(c, (uint32_t)(k % 3), payload, &s.fault),
                      CAISSON_E_HASH);
        assert_names(&s, t);
        memcpy(x, old[0], 8);
        memcpy(y, old[1], 8);
        ASSERT_OK(csn_cmf_check_tensor(c, (uint32_t)(k % 3), payload, &err), &err);
    }
    assert_int_equal(verify(c, pool).n, 0);
    csn_cmf_close(c);
    csn_pool_free(pool);
}

static void whole_pieces_in_another_order_are_found(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    make();
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    const csn_tensor *t = &c->dir.tensors[1];
    uint8_t *p = memory_fs_find(&fs, "m.cmf")->bytes + t->offset;
    uint8_t *piece = malloc(CSN_DIGEST_PIECE);
    assert_non_null(piece);
    memcpy(piece, p, CSN_DIGEST_PIECE);
    memmove(p, p + CSN_DIGEST_PIECE, CSN_DIGEST_PIECE);
    memcpy(p + CSN_DIGEST_PIECE, piece, CSN_DIGEST_PIECE);
    struct seen s = verify(c, NULL);
    assert_names(&s, t);
    free(piece);
    csn_cmf_close(c);
}

/* 300 here, 10,000 with bench/damage.c. */
static void flipped_bits_are_found_and_named(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    make();
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    uint8_t *bytes = memory_fs_find(&fs, "m.cmf")->bytes;
    for (int k = 0; k < 300; k++) {
        const csn_tensor *t = &c->dir.tensors[k % 3];
        uint8_t *x = bytes + t->offset + below((uint32_t)t->nbytes);
        uint8_t flip = (uint8_t)(1u << below(8));
        *x ^= flip;
        struct seen s = verify(c, NULL);
        assert_names(&s, t);
        *x ^= flip;
    }
    uint64_t vocab = c->envelope.off[CSN_CMF_VOCAB];
    for (uint64_t i = 0; i + 16 <= c->envelope.len[CSN_CMF_VOCAB]; i += 8) { /* swapped words */
        uint8_t old[8];
        memcpy(old, bytes + vocab + i, 8);
        memcpy(bytes + vocab + i, bytes + vocab + i + 8, 8);
        memcpy(bytes + vocab + i + 8, old, 8);
        struct seen s = verify(c, NULL);
        assert_int_equal(s.n, 1);
        assert_string_equal(s.fault.section, "vocab");
        assert_int_equal(s.fault.offset, vocab);
        memcpy(bytes + vocab + i + 8, bytes + vocab + i, 8);
        memcpy(bytes + vocab + i, old, 8);
    }
    csn_cmf_close(c);
}

/* A swap of two directory records' hashes leaves the directory's own hash64 as it was; what the
 * directory then says is wrong for both tensors, and its digest says where. */
static void a_directory_with_swapped_words_is_named(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    make();
    cmf_bytes b = {memory_fs_find(&fs, "m.cmf")->bytes, memory_fs_find(&fs, "m.cmf")->len};
    size_t dir = (size_t)cmf_u64(b, 0x20);
    uint64_t x = cmf_u64(b, dir + 16 + 48);
    uint64_t y = cmf_u64(b, dir + 16 + 56 + 48);
    cmf_put(b, dir + 16 + 48, 8, y);
    cmf_put(b, dir + 16 + 56 + 48, 8, x);
    ASSERT_OK(csn_cmf_open(&fs.base, "m.cmf", &c, &err), &err);
    assert_int_equal(verify(c, NULL).n, 3); /* directory, a, big */
    csn_cmf_close(c);
}

/* ---- the keys ---- */

/* The file again with the text from `from` up to `until` (kept) of its header replaced. */
static cmf_outcome with(const char *from, const char *until, const char *replacement) {
    make();
    memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
    cmf_bytes b = {malloc(node->len + 1), node->len};
    memcpy(b.p, node->bytes, b.len);
    b.p[b.len] = 0;
    size_t len = (size_t)cmf_u64(b, 0x18);
    csn_str header = csn_str_make((char *)b.p + 128, len);
    size_t at = csn_str_find(header, csn_str_from(from), 0);
    assert_true(at != SIZE_MAX);
    size_t end = csn_str_find(header, csn_str_from(until), at + strlen(from));
    assert_true(end != SIZE_MAX);
    csn_buf text = CSN_BUF_INIT(1 << 20);
    caisson_error err;
    ASSERT_OK(csn_buf_append(&text, header.ptr, at, &err), &err);
    ASSERT_OK(csn_buf_str(&text, csn_str_from(replacement), &err), &err);
    ASSERT_OK(csn_buf_append(&text, header.ptr + end, len - end, &err), &err);
    assert_true(text.len <= len); /* blanks fill what was there */
    memset(b.p + 128, ' ', len);
    memcpy(b.p + 128, text.ptr, text.len);
    cmf_rehash(b);
    cmf_outcome o = cmf_try(&fs, b);
    csn_buf_free(&text);
    free(b.p);
    return o;
}

#define TENSORS "\"caisson.tensor_digests\":"
#define SECTIONS "\"caisson.section_digests\":"
#define AT_SECTIONS ",\"caisson.section"
#define D16 "AAAAAAAAAAAAAAAAAAAAAA=="
#define D48 "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define D48_BAD "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

static void keys_that_are_wrong_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *from, *until, *replacement, *key;
    } rows[] = {
        {TENSORS, AT_SECTIONS, TENSORS "\"\"", "caisson.tensor_digests"},
        {TENSORS, AT_SECTIONS, TENSORS "\"AAAA\"", "caisson.tensor_digests"},
        {TENSORS, AT_SECTIONS, TENSORS "\"" D16 "\"", "caisson.tensor_digests"},
        {TENSORS, AT_SECTIONS, TENSORS "\"" D48_BAD "\"", "caisson.tensor_digests"},
        {TENSORS, AT_SECTIONS, TENSORS "[]", "caisson.tensor_digests"},
        {TENSORS, AT_SECTIONS, TENSORS "null", "caisson.tensor_digests"},
        {TENSORS, AT_SECTIONS, TENSORS "7", "caisson.tensor_digests"},
        {SECTIONS, "}}", SECTIONS "{\"vocab\":\"AAAA\"", "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"vocab\":\"AAAAAAAAAAAAAAAAAAAAAA=A\"",
         "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"vocab\":\"AAAAAAAAAAAAAAAAAAAAAB==\"",
         "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"vocab\":7", "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"header\":\"" D16 "\"", "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"data\":\"" D16 "\"", "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"masks\":\"" D16 "\"", "caisson.section_digests"},
        {SECTIONS, "}}", SECTIONS "{\"vocab\":\"" D16 "\",\"vocab\":\"" D16 "\"",
         "caisson.section_digests"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cmf_outcome o = with(rows[i].from, rows[i].until, rows[i].replacement);
        if (o.status != CAISSON_E_PARSE || strcmp(o.err.tensor, rows[i].key) != 0) {
            fail_msg("%s: %s, %s", rows[i].replacement, caisson_status_name(o.status),
                     o.err.tensor);
        }
        assert_string_equal(o.err.section, "header");
        assert_string_equal(o.err.file, "m.cmf");
    }
    cmf_outcome o = with(TENSORS, AT_SECTIONS, TENSORS "\"" D48 "\"");
    assert_int_equal(o.status, CAISSON_OK); /* the right size: three digests, all wrong */
    assert_int_equal(o.n_faults, 3);
    o = with(SECTIONS, "}}", SECTIONS "{");
    assert_int_equal(o.status, CAISSON_OK); /* none is fine */
    assert_int_equal(o.n_faults, 0);
    o = with(",\"caisson.tensor_digests", "}}", ",\"caisson.other\":{");
    assert_int_equal(o.status, CAISSON_OK); /* as an older writer left it */
    assert_int_equal(o.n_faults, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swapped_words_are_found_and_named),
        cmocka_unit_test(whole_pieces_in_another_order_are_found),
        cmocka_unit_test(flipped_bits_are_found_and_named),
        cmocka_unit_test(a_directory_with_swapped_words_is_named),
        cmocka_unit_test(keys_that_are_wrong_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
