/* SPDX-License-Identifier: Apache-2.0 */
/* Systematic damage: a file that is cut, flipped or lied to is refused at open, or verify finds it;
 * it never crashes and never passes in silence. */
#include "unit/test.h"

#include "support/cmf_edit.h"
#include "support/cmf_golden.h"

static memory_fs fs;

static int setup(void **state) {
    (void)state;
    memory_fs_init(&fs);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    int n_open = fs.n_open;
    memory_fs_done(&fs);
    return n_open; /* a file left open fails the group */
}

/* Small files with every section; verify-masks has one flipped bit, which is put right here. */
static cmf_bytes file_with_all_sections(void) {
    cmf_bytes b = cmf_load(CMF_GOLDEN "bad/verify-masks.cmf");
    cmf_outcome o = cmf_try(&fs, b);
    assert_int_equal(o.status, CAISSON_OK);
    assert_int_equal(o.n_faults, 1);
    uint64_t masks = cmf_u64(b, 0x40);
    uint64_t end = masks + cmf_u64(b, 0x48);
    for (uint64_t i = masks; i < end; i++) {
        for (int bit = 0; bit < 8; bit++) {
            b.p[i] ^= (uint8_t)(1 << bit);
            o = cmf_try(&fs, b);
            if (o.status == CAISSON_OK && o.n_faults == 0) {
                return b;
            }
            b.p[i] ^= (uint8_t)(1 << bit);
        }
    }
    fail_msg("no sound variant");
    return b;
}

static void assert_noticed(const char *what, size_t at, cmf_outcome o) {
    if (o.status == CAISSON_OK && o.n_faults == 0) {
        fail_msg("%s at %zu passed in silence", what, at);
    }
    assert_true(o.status == CAISSON_OK || o.err.code == o.status);
}

static void truncated_at_every_offset(void **state) {
    (void)state;
    static const char *const files[] = {"files/odd-section-order.cmf", "files/odd-minimal.cmf",
                                        "files/tiny-all-dtypes.cmf"};
    for (size_t f = 0; f <= sizeof(files) / sizeof(files[0]); f++) {
        char path[512];
        snprintf(path, sizeof(path), CMF_GOLDEN "%s", f > 0 ? files[f - 1] : "");
        cmf_bytes b = f > 0 ? cmf_load(path) : file_with_all_sections();
        size_t whole = b.len;
        for (b.len = 0; b.len < whole; b.len++) {
            cmf_outcome o = cmf_try(&fs, b);
            assert_true(o.status == CAISSON_E_BOUNDS || o.status == CAISSON_E_PARSE ||
                        o.status == CAISSON_E_HASH);
            assert_string_equal(o.err.file, "m.cmf");
        }
        free(b.p);
    }
}

/* What a reader must not care about: reserved flags (CMF 1), known feature bits (CMF 1.1 gives them
 * no rule), the offset of a section that is empty (CMF 1: absent). */
static bool means_nothing(cmf_bytes b, size_t at, unsigned bit) {
    if (at >= 0x08 && at < 0x0C) {
        return true;
    }
    if (at == 0x0C && (0x67 >> bit & 1) != 0) {
        return true;
    }
    if (at >= 0x10 && at < 0x70) {
        size_t section = (at - 0x10) / 16;
        return (at - 0x10) % 16 < 8 && cmf_u64(b, 0x18 + 16 * section) == 0;
    }
    return false;
}

static void every_bit_of_envelope_header_directory_flipped(void **state) {
    (void)state;
    for (int f = 0; f < 2; f++) {
        cmf_bytes b =
            f == 0 ? file_with_all_sections() : cmf_load(CMF_GOLDEN "files/odd-minimal.cmf");
        uint64_t end = cmf_u64(b, 0x20) + cmf_u64(b, 0x28); /* header and directory follow */
        size_t n = 0;
        for (size_t at = 0; at < end; at++) {
            for (unsigned bit = 0; bit < 8; bit++) {
                if (means_nothing(b, at, bit)) {
                    continue;
                }
                b.p[at] ^= (uint8_t)(1u << bit);
                assert_noticed("flip", at, cmf_try(&fs, b));
                b.p[at] ^= (uint8_t)(1u << bit);
                n++;
            }
        }
        assert_true(n > 2000);
        free(b.p);
    }
}

/* The same with hashes made right again: a liar, not an accident. Nothing may crash, and whatever
 * opens must have stayed inside its bounds (the sanitizers watch). */
static void every_byte_of_header_and_directory_lied_about(void **state) {
    (void)state;
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff, '"', '{', '9'};
    cmf_bytes b = file_with_all_sections();
    uint64_t end = cmf_u64(b, 0x20) + cmf_u64(b, 0x28);
    for (size_t at = 128; at < end; at++) {
        for (size_t v = 0; v < sizeof(values); v++) {
            cmf_bytes c = cmf_copy(b);
            c.p[at] = values[v];
            cmf_rehash(c);
            (void)cmf_try(&fs, c);
            free(c.p);
        }
    }
    free(b.p);
}

/* Each length and count of the file: 0, 1, one more, one less, the file's size, 2^31, 2^32 + 5,
 * 2^63, the largest (F1, F2, F3, F7, F9). */
static void every_length_set_to_extremes(void **state) {
    (void)state;
    cmf_bytes b = file_with_all_sections();
    size_t dir = (size_t)cmf_u64(b, 0x20);
    size_t masks = (size_t)cmf_u64(b, 0x40);
    size_t index = (size_t)cmf_u64(b, 0x60);
    const struct {
        const char *what;
        size_t at;
        unsigned n_bytes;
        bool may_pass; /* an inner pointer that another valid place may satisfy */
    } fields[] = {
        {"header_off", 0x10, 8, false},    {"header_len", 0x18, 8, false},
        {"dir_off", 0x20, 8, false},       {"dir_len", 0x28, 8, false},
        {"data_off", 0x30, 8, false},      {"data_len", 0x38, 8, false},
        {"masks_off", 0x40, 8, false},     {"masks_len", 0x48, 8, false},
        {"vocab_off", 0x50, 8, false},     {"vocab_len", 0x58, 8, false},
        {"index_off", 0x60, 8, false},     {"index_len", 0x68, 8, false},
        {"count", dir, 8, true},           {"pool_off", dir + 8, 8, true},
        {"name_off", dir + 16, 4, true},   {"name_len", dir + 20, 2, true},
        {"ndim", dir + 23, 1, false},      {"dim", dir + 24, 4, false},
        {"off", dir + 48, 8, false},       {"nbytes", dir + 56, 8, false},
        {"n_masks", masks, 4, false},      {"meta_len", masks + 4, 4, false},
        {"n_entries", index, 4, false},    {"n_groups", index + 16, 4, false},
        {"n_heads", index + 20, 4, false},
    };
    for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
        uint64_t old = 0;
        for (unsigned i = fields[f].n_bytes; i-- > 0;) {
            old = old << 8 | b.p[fields[f].at + i];
        }
        const uint64_t values[] = {0,
                                   1,
                                   old + 1,
                                   old - 1,
                                   b.len,
                                   b.len + 1,
                                   UINT64_C(1) << 31,
                                   (UINT64_C(1) << 32) + 5,
                                   UINT64_C(1) << 63,
                                   UINT64_MAX - 4095,
                                   UINT64_MAX};
        uint64_t mask =
            fields[f].n_bytes == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * fields[f].n_bytes)) - 1;
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            if ((values[v] & mask) == old) {
                continue;
            }
            cmf_bytes c = cmf_copy(b);
            cmf_put(c, fields[f].at, fields[f].n_bytes, values[v]);
            if (fields[f].at < 128) { /* the envelope has no hash of its own: as it stands */
                assert_noticed(fields[f].what, v, cmf_try(&fs, c));
            }
            cmf_rehash(c); /* a liar's file: a longer directory may be sound, so only no crash */
            cmf_outcome o = cmf_try(&fs, c);
            if (fields[f].at >= 128 && !fields[f].may_pass) {
                assert_noticed(fields[f].what, v, o);
            }
            free(c.p);
        }
    }
    free(b.p);
}

struct told {
    unsigned n;
    char sections[8][64], tensors[8][192];
    uint64_t offsets[8], n_bytes[8];
};

static void note_fault(void *ctx, const caisson_error *fault) {
    struct told *t = ctx;
    assert_true(t->n < 8);
    snprintf(t->sections[t->n], sizeof(t->sections[0]), "%s", fault->section);
    t->offsets[t->n] = fault->has_offset ? fault->offset : 0;
    t->n_bytes[t->n] = fault->n_bytes;
    snprintf(t->tensors[t->n++], sizeof(t->tensors[0]), "%s", fault->tensor);
}

/* A bit in the header, one in a name of the directory, one in a payload and one in the masks: all
 * four are told, in one run. */
static void damage_in_many_places_is_told_in_one_run(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    csn_file *f = NULL;
    caisson_error err;
    struct told told = {0};
    uint64_t n;
    cmf_bytes b = cmf_load(CMF_GOLDEN "files/tiny-masks.cmf");
    size_t header = (size_t)cmf_u64(b, 0x10);
    size_t dir_end = (size_t)(cmf_u64(b, 0x20) + cmf_u64(b, 0x28));
    size_t masks = (size_t)cmf_u64(b, 0x40);
    b.p[header] ^= 1;              /* no JSON any more */
    b.p[dir_end - 1] ^= 1;         /* the last name's last letter */
    b.p[cmf_u64(b, 0x30)] ^= 0x10; /* the first payload */
    b.p[masks + cmf_u64(b, 0x48) - 1] ^= 1;
    (void)memory_fs_put(&fs, "m.cmf", b.p, b.len);
    ASSERT_OK(csn_fs_open(&fs.base, "m.cmf", CSN_OPEN_READ, &f, &err), &err);
    ASSERT_OK(csn_cmf_open_damaged(f, note_fault, &told, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, note_fault, &told, &n, &err), &err);
    assert_int_equal(told.n, 3); /* the hash of the masks stood in the header */
    assert_string_equal(told.sections[0], "header");
    assert_string_equal(told.sections[1], "directory");
    assert_string_equal(told.sections[2], "data");
    assert_string_equal(told.tensors[2], "model.embed_tokens.weight");
    csn_cmf_close(c);
    b.p[header] ^= 1;
    memset(&told, 0, sizeof(told));
    (void)memory_fs_put(&fs, "m.cmf", b.p, b.len);
    ASSERT_OK(csn_fs_open(&fs.base, "m.cmf", CSN_OPEN_READ, &f, &err), &err);
    ASSERT_OK(csn_cmf_open_damaged(f, note_fault, &told, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, note_fault, &told, &n, &err), &err);
    assert_int_equal(told.n, 3);
    assert_string_equal(told.sections[0], "directory");
    assert_string_equal(told.sections[1], "masks");
    assert_string_equal(told.sections[2], "data");
    csn_cmf_close(c);
    free(b.p);
}

/* Masks that say to be 255 and an index of another count cannot be parsed, and nothing in them has
 * a place of its own: their ranges are told as the envelope has them. */
static void unreadable_sections_are_told_with_their_ranges(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    csn_file *f = NULL;
    caisson_error err;
    struct told told = {0};
    uint64_t n;
    cmf_bytes b = cmf_load(CMF_GOLDEN "files/tiny-index.cmf");
    uint64_t masks = cmf_u64(b, 0x40), masks_len = cmf_u64(b, 0x48);
    uint64_t index = cmf_u64(b, 0x60), index_len = cmf_u64(b, 0x68);
    b.p[masks] = 0xff;
    b.p[index] ^= 1;
    (void)memory_fs_put(&fs, "m.cmf", b.p, b.len);
    ASSERT_OK(csn_fs_open(&fs.base, "m.cmf", CSN_OPEN_READ, &f, &err), &err);
    ASSERT_OK(csn_cmf_open_damaged(f, note_fault, &told, &c, &err), &err);
    ASSERT_OK(csn_cmf_verify(c, NULL, NULL, note_fault, &told, &n, &err), &err);
    assert_int_equal(told.n, 2);
    assert_string_equal(told.sections[0], "masks");
    assert_int_equal(told.offsets[0], masks);
    assert_int_equal(told.n_bytes[0], masks_len);
    assert_string_equal(told.sections[1], "index");
    assert_int_equal(told.offsets[1], index);
    assert_int_equal(told.n_bytes[1], index_len);
    csn_cmf_close(c);
    free(b.p);
}

static void random_bit_flips_are_found(void **state) {
    (void)state;
    static const char *const files[] = {"files/tiny-all-dtypes.cmf", "files/tiny-index.cmf",
                                        "files/tiny-skills.cmf"};
    uint32_t x = 2026;
    print_message("seed %u\n", x);
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        char path[512];
        csn_cmf *c = NULL;
        caisson_error err;
        snprintf(path, sizeof(path), CMF_GOLDEN "%s", files[f]);
        cmf_bytes b = cmf_load(path);
        ASSERT_OK(cmf_open_bytes(&fs, b, &c, &err), &err);
        uint8_t *is_used = calloc(1, b.len); /* bytes that belong to something */
        assert_non_null(is_used);
        for (int s = 0; s < CSN_CMF_N_SECTIONS; s++) {
            if (s != CSN_CMF_DATA) {
                memset(is_used + c->envelope.off[s], 1, c->envelope.len[s]);
            }
        }
        for (uint32_t i = 0; i < c->dir.n; i++) {
            memset(is_used + c->dir.tensors[i].offset, 1, c->dir.tensors[i].nbytes);
        }
        csn_cmf_close(c);
        for (int k = 0; k < 1000; k++) {
            size_t at;
            do {
                x = x * 1664525u + 1013904223u;
                at = (size_t)(((uint64_t)x * b.len) >> 32);
            } while (is_used[at] == 0);
            x = x * 1664525u + 1013904223u;
            uint8_t flip = (uint8_t)(1u << (x >> 29));
            b.p[at] ^= flip;
            assert_noticed("bit flip", at, cmf_try(&fs, b));
            b.p[at] ^= flip;
        }
        free(is_used);
        free(b.p);
    }
}

struct seen {
    uint64_t n;
    char tensor[160];
    uint64_t offset, n_bytes;
    bool is_ordered; /* each behind the one before it */
};

static void keep_fault(void *ctx, const caisson_error *fault) {
    struct seen *s = ctx;
    s->is_ordered = s->n == 0 || (s->is_ordered && fault->offset > s->offset);
    s->n++;
    snprintf(s->tensor, sizeof(s->tensor), "%s", fault->tensor);
    s->offset = fault->offset;
    s->n_bytes = fault->n_bytes;
}

static void verify_names_every_damaged_tensor(void **state) {
    (void)state;
    cmf_bytes b = cmf_load(CMF_GOLDEN "files/tiny-all-dtypes.cmf");
    csn_cmf *c = NULL;
    csn_pool *pool = NULL;
    caisson_error err;
    ASSERT_OK(csn_pool_new(3, &pool, &err), &err);
    ASSERT_OK(cmf_open_bytes(&fs, b, &c, &err), &err);
    for (uint32_t i = 0; i < c->dir.n; i++) {
        const csn_tensor *t = &c->dir.tensors[i];
        struct seen s = {0};
        uint64_t n = 0;
        memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
        node->bytes[t->offset + t->nbytes - 1] ^= 0x10;
        ASSERT_OK(csn_cmf_verify(c, pool, NULL, keep_fault, &s, &n, &err), &err);
        assert_int_equal(n, 1);
        assert_int_equal(s.n, 1);
        assert_true(csn_str_is(t->name, s.tensor));
        assert_int_equal(s.offset, t->offset);
        assert_int_equal(s.n_bytes, t->nbytes);
        node->bytes[t->offset + t->nbytes - 1] ^= 0x10;
    }
    /* all at once: it does not stop at the first */
    memory_fs_node *node = memory_fs_find(&fs, "m.cmf");
    for (uint32_t i = 0; i < c->dir.n; i++) {
        node->bytes[c->dir.tensors[i].offset] ^= 1;
    }
    uint64_t n = 0;
    struct seen s = {0};
    ASSERT_OK(csn_cmf_verify(c, pool, NULL, keep_fault, &s, &n, &err), &err);
    assert_int_equal(n, c->dir.n);
    assert_true(s.is_ordered);
    csn_cmf_close(c);
    csn_pool_free(pool);
    free(b.p);
}

static bool stop_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    return done == 0 || total == 0;
}

static void verify_stops_on_request(void **state) {
    (void)state;
    csn_cmf *c = NULL;
    caisson_error err;
    uint64_t n = 77;
    ASSERT_OK(csn_cmf_open(csn_fs_os(), CMF_GOLDEN "files/tiny-f32.cmf", &c, &err), &err);
    csn_progress progress = {stop_at_once, NULL};
    ASSERT_STATUS(csn_cmf_verify(c, NULL, &progress, cmf_ignore_fault, NULL, &n, &err),
                  CAISSON_E_CANCELLED);
    assert_int_equal(n, 77);
    csn_cmf_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"truncated at every offset (CMF 1.2)", truncated_at_every_offset, NULL, NULL, NULL},
        {"every bit of envelope, header, directory flipped (CMF 8.1)",
         every_bit_of_envelope_header_directory_flipped, NULL, NULL, NULL},
        {"every byte of header and directory lied about (CMF 1.2)",
         every_byte_of_header_and_directory_lied_about, NULL, NULL, NULL},
        {"every length set to extremes (CMF 1.2)", every_length_set_to_extremes, NULL, NULL, NULL},
        {"random bit flips are found (CMF 8)", random_bit_flips_are_found, NULL, NULL, NULL},
        {"verify names every damaged tensor (CMF 8)", verify_names_every_damaged_tensor, NULL, NULL,
         NULL},
        cmocka_unit_test(damage_in_many_places_is_told_in_one_run),
        cmocka_unit_test(unreadable_sections_are_told_with_their_ranges),
        cmocka_unit_test(verify_stops_on_request),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
