/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying .waste directories: every record of the nine containers is sound, every damaged byte
 * that a checksum or digest covers is found where it is, and digests are those of XXH3-128
 * (Python's xxhash 3.6.0). */
#include "../test.h"

#include "base/alloc.h"
#include "support/warp_golden.h"

enum { MAX_TOLD = 64 };

typedef struct fixture {
    memory_fs fs;
    csn_warp *w;
    csn_pool *pool;
    caisson_error err;
    caisson_error faults[MAX_TOLD], notes[MAX_TOLD];
    size_t n_faults, n_notes;
} fixture;

static void begin(fixture *f, const char *container) {
    memset(f, 0, sizeof(*f));
    memory_fs_init(&f->fs);
    warp_load(&f->fs, container);
    ASSERT_OK(csn_pool_new(3, &f->pool, &f->err), &f->err);
    ASSERT_OK(csn_warp_open(&f->fs.base, "m.waste", NULL, &f->w, &f->err), &f->err);
}
static void end(fixture *f) {
    csn_warp_close(f->w);
    csn_pool_free(f->pool);
    assert_int_equal(f->fs.n_open, 0);
    memory_fs_done(&f->fs);
}

static void on_fault(void *ctx, const caisson_error *fault) {
    fixture *f = ctx;
    if (f->n_faults < MAX_TOLD) {
        f->faults[f->n_faults] = *fault;
    }
    f->n_faults++;
}
static void on_note(void *ctx, const caisson_error *note) {
    fixture *f = ctx;
    if (f->n_notes < MAX_TOLD) {
        f->notes[f->n_notes] = *note;
    }
    f->n_notes++;
}
static void verify(fixture *f) {
    f->n_faults = f->n_notes = 0;
    ASSERT_OK(csn_warp_verify(f->w, f->pool, NULL, on_fault, on_note, f, &f->err), &f->err);
}
static void write_digests(fixture *f) {
    ASSERT_OK(csn_warp_write_digests(f->w, NULL, &f->err), &f->err);
}

static void every_container_is_valid(void **state) {
    (void)state;
    static const char *const names[] = {
        "vq3r-base.waste", "vq3r-tok.waste", "vq3r-rope.waste", "vq2r.waste",     "vq4p.waste",
        "vq3r-odd.waste",  "vq3r-k3.waste",  "vq4p-k3.waste",   "vq3r-q3g.waste",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture f;
        begin(&f, names[i]);
        verify(&f);
        assert_int_equal(f.n_faults, 0);
        assert_int_equal(f.n_notes, 1); /* no digests */
        write_digests(&f);
        verify(&f);
        assert_int_equal(f.n_faults, 0);
        assert_int_equal(f.n_notes, 0);
        end(&f);
    }
}

static void digests_are_those_of_xxhash(void **state) {
    (void)state;
    static const char *const lines[] = {
        "\"manifest.json\": \"0e0f31b2bae3b3661b84567974f91d83\"",
        "\"codebooks.bin\": \"fc9a251c84d749f482df6d4331b56cf3\"",
        "\"model.embed_tokens.weight\": \"5b93c8249716ddc588ebc92d6930009d\"",
    };
    fixture f;
    begin(&f, "vq3r-base.waste");
    write_digests(&f);
    memory_fs_node *node = warp_node(&f.fs, CSN_WARP_DIGESTS);
    csn_str text = csn_str_make((char *)node->bytes, node->len);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_true(csn_str_find(text, csn_str_from(lines[i]), 0) != SIZE_MAX);
    }
    end(&f);
}

static void damage_is_found_where_it_is(void **state) {
    (void)state;
    static const struct {
        const char *file;
        size_t at;
        const char *section, *tensor;
        caisson_status code;
    } cases[] = {
        {"experts-L1.bin", 3 * 12288 + 100, "experts", "model.layers.1.mlp.experts.3",
         CAISSON_E_HASH},
        {"experts-L3.bin", 7 * 12288 + 6, "experts", "model.layers.3.mlp.experts.7",
         CAISSON_E_PARSE},
        {"trunk.bin", 0, "trunk", "model.embed_tokens.weight", CAISSON_E_HASH},
        {"trunk.bin", 33279, "trunk", "model.embed_tokens.weight", CAISSON_E_HASH}, /* a scale */
        {"trunk.bin", 386151, "trunk", "lm_head.weight", CAISSON_E_HASH},
        {"codebooks.bin", 5000, "files", "", CAISSON_E_HASH},
        {"manifest.json", 1, "files", "", CAISSON_E_HASH},
        {"tokenizer.model", 20, "files", "", CAISSON_E_HASH},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        begin(&f, "vq3r-base.waste");
        warp_put(&f.fs, "tokenizer.model", "AA== 0\nAQ== 1\nAg== 2\n", 21);
        write_digests(&f);
        warp_node(&f.fs, cases[i].file)->bytes[cases[i].at] ^= 0x10;
        verify(&f);
        assert_int_equal(f.n_faults, 1);
        const caisson_error *fault = &f.faults[0];
        assert_int_equal(fault->code, cases[i].code);
        assert_string_equal(fault->section, cases[i].section);
        assert_string_equal(fault->tensor, cases[i].tensor);
        assert_non_null(strstr(fault->file, cases[i].file));
        assert_true(fault->want[0] != '\0' && fault->got[0] != '\0');
        end(&f);
    }
}

static void all_faults_are_told_in_order(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    write_digests(&f);
    for (size_t e = 0; e < 8; e++) { /* the damage of the interop README */
        warp_node(&f.fs, "experts-L2.bin")->bytes[e * 12288 + 200] ^= 1;
    }
    warp_node(&f.fs, "codebooks.bin")->bytes[20] ^= 1;
    memory_fs_node *trunk = warp_node(&f.fs, "trunk.bin");
    trunk->len -= 1; /* the file shrinks while it is open: an error of what was there */
    verify(&f);
    assert_int_equal(f.n_faults, 10);
    assert_string_equal(f.faults[0].section, "files");
    assert_string_equal(f.faults[1].tensor, "lm_head.weight");
    ASSERT_STATUS(f.faults[1].code, CAISSON_E_IO);
    assert_string_equal(f.faults[2].tensor, "model.layers.2.mlp.experts.0");
    assert_string_equal(f.faults[9].tensor, "model.layers.2.mlp.experts.7");
    trunk->len += 1;
    end(&f);
}

static void what_is_odd_is_noted(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    write_digests(&f);
    warp_node(&f.fs, "experts-L1.bin")->bytes[2 * 12288 + 9] = 255;
    warp_node(&f.fs, "experts-L1.bin")->bytes[3 * 12288 + 40] = 1;
    warp_node(&f.fs, "experts-L2.bin")->bytes[8 * 12288 - 1] = 1;
    verify(&f);
    assert_int_equal(f.n_faults, 0);
    assert_int_equal(f.n_notes, 2);
    assert_string_equal(f.notes[0].tensor, "model.layers.1.mlp.experts.2");
    assert_string_equal(f.notes[0].got, "2");
    assert_string_equal(f.notes[1].tensor, "model.layers.2.mlp.experts.7");
    end(&f);
}

static void digests_of_another_model_are_faults(void **state) {
    (void)state;
    static const char *const cases[] = {
        "{",
        "{}",
        "{\"caisson_digests\": 2}",
        "{\"caisson_digests\": 1}",
        "{\"caisson_digests\": 1, \"files\": {\"../x\": \"00\"}}",
        "{\"caisson_digests\": 1, \"files\": {\"chat.json\": \"00\"}}",
        "{\"caisson_digests\": 1, \"trunk\": {\"x\": \"5b93c8249716ddc588ebc92d6930009d\"}}",
    };
    fixture f;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&f, "vq3r-base.waste");
        warp_put(&f.fs, CSN_WARP_DIGESTS, cases[i], strlen(cases[i]));
        verify(&f);
        assert_int_equal(f.n_faults, 1);
        assert_non_null(strstr(f.faults[0].file, CSN_WARP_DIGESTS));
        end(&f);
    }
    begin(&f, "vq3r-tok.waste"); /* a file that is gone */
    write_digests(&f);
    memory_fs_drop(warp_node(&f.fs, "specials.json"));
    verify(&f);
    assert_int_equal(f.n_faults, 1);
    ASSERT_STATUS(f.faults[0].code, CAISSON_E_IO);
    assert_non_null(strstr(f.faults[0].file, "specials.json"));
    end(&f);
}

static bool stop_at_once(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    (void)ctx;
    (void)stage;
    (void)done;
    (void)total;
    return false;
}

static void it_can_be_stopped(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    csn_progress progress = {stop_at_once, NULL};
    ASSERT_STATUS(csn_warp_verify(f.w, NULL, &progress, on_fault, on_note, &f, &f.err),
                  CAISSON_E_CANCELLED);
    ASSERT_STATUS(csn_warp_write_digests(f.w, &progress, &f.err), CAISSON_E_CANCELLED);
    assert_null(warp_node(&f.fs, CSN_WARP_DIGESTS));
    end(&f);
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    write_digests(&f);
    warp_node(&f.fs, "trunk.bin")->bytes[0] ^= 1; /* a fault has to be kept, too */
    caisson_status status = CAISSON_E_NOMEM;
    for (int64_t n = 0; status != CAISSON_OK; n++) {
        csn_alloc_fail_after(n);
        status = csn_warp_verify(f.w, NULL, NULL, on_fault, on_note, &f, &f.err);
        csn_alloc_fail_after(-1);
        if (status != CAISSON_OK) {
            ASSERT_STATUS(status, CAISSON_E_NOMEM);
        }
    }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_container_is_valid),
        cmocka_unit_test(digests_are_those_of_xxhash),
        cmocka_unit_test(damage_is_found_where_it_is),
        cmocka_unit_test(all_faults_are_told_in_order),
        cmocka_unit_test(what_is_odd_is_noted),
        cmocka_unit_test(digests_of_another_model_are_faults),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
