/* SPDX-License-Identifier: Apache-2.0 */
/* Masks and sparse index by themselves, with the worked examples of facts 6.1 and 8. */
#include "unit/test.h"

#include <stdio.h>
#include <string.h>

#include "format/cmf/cmf_internal.h"

/* 2 layers, 40 neurons, 3 heads, as in the example. */
static csn_arch example_arch(void) {
    csn_arch a;
    csn_arch_init(&a);
    a.n_layers = 2;
    a.intermediate_size = 40;
    a.n_heads = 3;
    return a;
}

static const uint8_t example_blob[] = {0xff, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0x05, 0x07, 0x01};

/* A section with one mask; `fields` replaces what stands between name and blob_off. */
static uint64_t make_masks(uint8_t out[1024], const char *fields, const uint8_t *blob,
                           uint64_t blob_len, uint64_t blob_off) {
    char meta[512];
    int n = snprintf(meta, sizeof(meta),
                     "{\"default_task\":\"a\",\"masks\":[{\"task_id\":0,\"name\":\"a\",%s"
                     "\"blob_off\":%llu,\"blob_len\":%llu}]}",
                     fields, (unsigned long long)blob_off, (unsigned long long)blob_len);
    memset(out, 0, 1024);
    out[0] = 1;
    csn_put32(out + 4, (uint32_t)n);
    memcpy(out + 8, meta, (size_t)n);
    if (blob_off < 900) {
        memcpy(out + blob_off, blob, blob_len < 100 ? (size_t)blob_len : 100);
    }
    return blob_off + blob_len;
}

static caisson_status parse_masks(const uint8_t *bytes, uint64_t len, const csn_arch *a,
                                  caisson_error *err) {
    csn_arena arena = {0};
    csn_json *doc = NULL;
    csn_cmf_masks masks;
    caisson_status status = csn_cmf_parse_masks(bytes, len, a, &arena, &doc, &masks, err);
    csn_json_free(doc);
    csn_arena_done(&arena);
    return status;
}

#define FIELDS "\"sparsity\":0.5,\"priority\":\"Fallback\","

static caisson_status check_masks(const char *fields, const uint8_t *blob, uint64_t blob_len,
                                  const csn_arch *a, caisson_error *err) {
    uint8_t section[1024];
    uint64_t n = make_masks(section, fields, blob, blob_len, 512);
    return parse_masks(section, n, a, err);
}

static void the_worked_mask_passes(void **state) {
    (void)state;
    csn_arch a = example_arch();
    caisson_error err;
    ASSERT_OK(check_masks(FIELDS, example_blob, sizeof(example_blob), &a, &err), &err);
}

static void the_worked_mask_is_read(void **state) {
    (void)state;
    csn_arch a = example_arch();
    caisson_error err;
    uint8_t section[1024];
    csn_arena arena = {0};
    csn_json *doc = NULL;
    csn_cmf_masks masks;
    uint64_t n = make_masks(section, FIELDS, example_blob, sizeof(example_blob), 512);
    ASSERT_OK(csn_cmf_parse_masks(section, n, &a, &arena, &doc, &masks, &err), &err);
    assert_int_equal(masks.n, 1);
    assert_true(csn_str_is(masks.default_task, "a"));
    const csn_cmf_mask *m = NULL;
    ASSERT_OK(csn_cmf_find_mask(&masks, CSN_STR("a"), &m, &err), &err);
    assert_int_equal(m->n_ffn_rows, 2);
    assert_int_equal(m->ffn[4], 0x80); /* neuron 39 of layer 0 */
    assert_int_equal(m->ffn[5], 0);
    assert_int_equal(m->heads[0], 5);
    assert_int_equal(m->heads[1], 7);
    assert_int_equal(m->gates[0], 1);
    assert_null(m->experts);
    assert_null(m->quality);
    ASSERT_STATUS(csn_cmf_find_mask(&masks, CSN_STR("b"), &m, &err), CAISSON_E_MISSING);
    assert_string_equal(err.want, "a");
    csn_json_free(doc);
    csn_arena_done(&arena);
}

/* Many masks over one blob would make a short section cost long work at open. */
static void masks_that_share_bytes_are_refused(void **state) {
    (void)state;
    csn_arch a = example_arch();
    a.intermediate_size = 8 * 2000; /* two rows of 2000 bytes: a blob is most of the section */
    enum { BLOB = 4003, OFF = 512 };
    static uint8_t section[OFF + 2 * BLOB];
    caisson_error err;
    memset(section, 0, sizeof(section));
    section[0] = 2;
    int n = snprintf((char *)section + 8, 500,
                     "{\"default_task\":\"a\",\"masks\":[{\"task_id\":0,\"name\":\"a\"," FIELDS
                     "\"blob_off\":512,\"blob_len\":4003},{\"task_id\":1,\"name\":\"b\"," FIELDS
                     "\"blob_off\":512,\"blob_len\":4003}]}");
    csn_put32(section + 4, (uint32_t)n);
    ASSERT_STATUS(parse_masks(section, OFF + BLOB, &a, &err), CAISSON_E_PARSE);
    assert_string_equal(err.tensor, "b");
    assert_string_equal(err.want, "4515");
    assert_string_equal(err.got, "8006");
    ASSERT_OK(parse_masks(section, sizeof(section), &a, &err), &err); /* there would be room */
}

static void bits_beyond_a_dimension_are_refused(void **state) {
    (void)state;
    csn_arch a = example_arch();
    caisson_error err;
    a.intermediate_size = 37; /* 3 tail bits in each FFN row */
    const struct {
        size_t at;
        unsigned bit;
        bool is_tail;
    } flips[] = {{4, 4, false}, {4, 5, true},   {9, 7, true},  {10, 2, false}, {10, 3, true},
                 {11, 7, true}, {12, 1, false}, {12, 2, true}, {0, 7, false}};
    for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        uint8_t blob[sizeof(example_blob)];
        memcpy(blob, example_blob, sizeof(blob));
        blob[4] = 0;
        blob[flips[i].at] ^= (uint8_t)(1u << flips[i].bit);
        ASSERT_STATUS(check_masks(FIELDS, blob, sizeof(blob), &a, &err),
                      flips[i].is_tail ? CAISSON_E_PARSE : CAISSON_OK);
    }
}

static void blob_lengths_follow_loops_and_experts(void **state) {
    (void)state;
    uint8_t zeros[100] = {0};
    caisson_error err;
    static const struct {
        uint32_t loops, experts; /* experts 0: no moe block */
        bool has_fields;
        uint64_t len;
        caisson_status status;
    } cases[] = {
        {1, 0, false, 13, CAISSON_OK},      {1, 0, false, 12, CAISSON_E_PARSE},
        {1, 0, false, 14, CAISSON_E_PARSE}, {1, 0, true, 13, CAISSON_E_PARSE},
        {3, 0, false, 33, CAISSON_OK},      {3, 0, false, 13, CAISSON_OK}, /* one row a layer */
        {3, 0, false, 23, CAISSON_E_PARSE}, {1, 11, true, 17, CAISSON_OK},
        {1, 11, false, 13, CAISSON_OK},     {1, 11, true, 13, CAISSON_E_PARSE},
        {2, 11, true, 27, CAISSON_OK},      {2, 11, true, 17, CAISSON_OK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        csn_arch a = example_arch();
        a.num_loops = cases[i].loops;
        a.moe.present = cases[i].experts != 0;
        a.moe.n_experts = cases[i].experts;
        caisson_status status =
            check_masks(cases[i].has_fields ? FIELDS "\"has_expert_fields\":true," : FIELDS, zeros,
                        cases[i].len, &a, &err);
        if (status != cases[i].status) {
            fail_msg("case %zu: %s", i, caisson_status_name(status));
        }
    }
}

static void mask_metadata_is_checked(void **state) {
    (void)state;
    csn_arch a = example_arch();
    caisson_error err;
    static const struct {
        const char *fields;
        caisson_status status;
    } cases[] = {
        {"\"sparsity\":0.5,\"priority\":\"Urgent\",", CAISSON_E_PARSE},
        {"\"sparsity\":0.5,", CAISSON_E_PARSE},
        {"\"priority\":\"Normal\",", CAISSON_E_PARSE},
        {FIELDS "\"quality\":null,\"description\":null,\"parent\":null,", CAISSON_OK},
        {FIELDS "\"quality\":{\"metric\":\"ppl\",\"value\":0.97,\"n_samples\":512},", CAISSON_OK},
        {FIELDS "\"quality\":{\"metric\":\"ppl\"},", CAISSON_E_PARSE},
        {FIELDS "\"quality\":1.0,", CAISSON_E_PARSE},
        {FIELDS "\"has_hot_pack\":1,", CAISSON_E_PARSE},
        {FIELDS "\"new_key\":[1],", CAISSON_OK},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        caisson_status status =
            check_masks(cases[i].fields, example_blob, sizeof(example_blob), &a, &err);
        if (status != cases[i].status) {
            fail_msg("%s: %s", cases[i].fields, caisson_status_name(status));
        }
    }
}

static void mask_blobs_stay_in_the_section(void **state) {
    (void)state;
    csn_arch a = example_arch();
    caisson_error err;
    uint8_t section[1024];
    static const uint64_t offsets[] = {1011, 1012, 1024, UINT64_MAX, UINT64_MAX - 12};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        (void)make_masks(section, FIELDS, example_blob, sizeof(example_blob), offsets[i]);
        ASSERT_STATUS(parse_masks(section, sizeof(section), &a, &err),
                      i == 0 ? CAISSON_OK : CAISSON_E_PARSE);
    }
}

static const uint8_t example_index[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                        2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0};

static void the_worked_index_passes(void **state) {
    (void)state;
    caisson_error err;
    ASSERT_OK(csn_cmf_check_index(example_index, sizeof(example_index), &err), &err);
    /* nothing but the padding may be cut */
    for (uint64_t n = 0; n < sizeof(example_index); n++) {
        ASSERT_STATUS(csn_cmf_check_index(example_index, n, &err),
                      n >= 30 ? CAISSON_OK : CAISSON_E_PARSE);
    }
}

static void index_counts_that_leave_the_section_are_refused(void **state) {
    (void)state;
    caisson_error err;
    static const struct {
        size_t at;
        uint32_t value;
    } lies[] = {{0, 2},  {0, UINT32_MAX},  {16, 4},          {16, UINT32_MAX},
                {20, 5}, {20, UINT32_MAX}, {16, 0x80000000}, {16, 0x7fffffff}};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint8_t b[sizeof(example_index)];
        memcpy(b, example_index, sizeof(b));
        csn_put32(b + lies[i].at, lies[i].value);
        ASSERT_STATUS(csn_cmf_check_index(b, sizeof(b), &err), CAISSON_E_PARSE);
        assert_string_equal(err.section, "index");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"the worked mask passes (CMF 5)", the_worked_mask_passes, NULL, NULL, NULL},
        {"the worked mask is read (CMF 5)", the_worked_mask_is_read, NULL, NULL, NULL},
        {"bits beyond a dimension are refused (CMF 5)", bits_beyond_a_dimension_are_refused, NULL,
         NULL, NULL},
        {"blob lengths follow loops and experts (CMF 5)", blob_lengths_follow_loops_and_experts,
         NULL, NULL, NULL},
        {"mask metadata is checked (CMF 5.1)", mask_metadata_is_checked, NULL, NULL, NULL},
        {"masks that share bytes are refused (CMF 5)", masks_that_share_bytes_are_refused, NULL,
         NULL, NULL},
        {"mask blobs stay in the section (CMF 5)", mask_blobs_stay_in_the_section, NULL, NULL,
         NULL},
        {"the worked index passes (CMF 7)", the_worked_index_passes, NULL, NULL, NULL},
        {"index counts that leave the section are refused (CMF 7)",
         index_counts_that_leave_the_section_are_refused, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
