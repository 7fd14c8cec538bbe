/* SPDX-License-Identifier: Apache-2.0 */
/* Opening .waste directories and reading expert records: what the nine containers of the existing
 * engine say, single weights worked out by hand from their bytes (README of the interop data), and
 * every way in which manifest, trunk, codebooks, banks and records can lie (warp facts 2 to 8). */
#include "../test.h"

#include "base/alloc.h"
#include "base/crc32.h"
#include "support/warp_golden.h"

typedef struct fixture {
    memory_fs fs;
    csn_warp *w;
    caisson_error err;
} fixture;

static void begin(fixture *f, const char *container) {
    memory_fs_init(&f->fs);
    f->w = NULL;
    warp_load(&f->fs, container);
}
static caisson_status open_it(fixture *f) {
    return csn_warp_open(&f->fs.base, "m.waste", NULL, &f->w, &f->err);
}
static void end(fixture *f) {
    csn_warp_close(f->w);
    assert_int_equal(f->fs.n_open, 0);
    memory_fs_done(&f->fs);
}
static void refused(fixture *f, caisson_status code, const char *section) {
    ASSERT_STATUS(open_it(f), code);
    assert_string_equal(f->err.section, section);
    assert_true(f->err.file[0] != '\0');
    assert_true(f->err.what[0] != '\0');
    f->w = NULL;
    end(f);
}

static const csn_tensor *tensor(const csn_warp *w, const char *name) {
    const csn_tensor *t = csn_directory_find(&w->dir, csn_str_from(name));
    if (t == NULL) {
        fail_msg("no tensor %s", name);
    }
    return t;
}

/* ---- what good containers say ---- */

static void opens_kimi_linear(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    assert_true(csn_warp_is(&f.fs.base, "m.waste"));
    assert_false(csn_warp_is(&f.fs.base, "m.waste/manifest.json"));
    ASSERT_OK(open_it(&f), &f.err);
    const csn_arch *a = &f.w->arch;
    ASSERT_STR(a->arch_name, "kimi-linear");
    assert_int_equal(a->n_layers, 4);
    assert_int_equal(a->hidden_size, 128);
    assert_int_equal(a->vocab_size, 256);
    assert_int_equal(a->intermediate_size, 256);
    assert_int_equal(a->n_layer_types, 4);
    assert_int_equal(a->layer_types[0], CSN_LAYER_KDA);
    assert_int_equal(a->layer_types[1], CSN_LAYER_KDA);
    assert_int_equal(a->layer_types[2], CSN_LAYER_FULL_ATTENTION);
    assert_int_equal(a->layer_types[3], CSN_LAYER_KDA);
    assert_int_equal(a->linear_n_key_heads, 4);
    assert_int_equal(a->linear_key_head_dim, 32);
    assert_int_equal(a->linear_conv_kernel_dim, 4);
    assert_false(a->has_kda_gate_lower_bound);
    assert_true(a->mla.present && a->mla.nope);
    assert_int_equal(a->mla.kv_lora_rank, 32);
    assert_int_equal(a->mla.q_lora_rank, 0);
    assert_true(a->moe.present && a->moe.router_sigmoid && a->moe.norm_topk_prob);
    assert_int_equal(a->moe.n_experts, 8);
    assert_int_equal(a->moe.top_k, 2);
    assert_int_equal(a->moe.n_group, 0);
    assert_int_equal(a->moe.shared_expert_intermediate_size, 64);
    assert_true(a->moe.routed_scaling_factor == 2.0);
    assert_int_equal(f.w->chat.n_eos, 1);
    assert_int_equal(f.w->chat.eos_token_ids[0], 2);
    assert_int_equal(f.w->n_banks, 3);
    assert_int_equal(f.w->banks[0].layer, 1);
    assert_int_equal(f.w->banks[2].codebook_base, 18);
    assert_int_equal(f.w->banks[0].stride, 3 * 4096);
    assert_int_equal(f.w->expert_width, 64);
    assert_int_equal(f.w->expert_hidden, 128);
    end(&f);
}

static void tensors_have_the_names_of_cmf(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    ASSERT_OK(open_it(&f), &f.err);
    static const char *const names[] = {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.kda_attn.q_conv1d.weight",
        "model.layers.1.kda_attn.A_log",
        "model.layers.1.kda_attn.g_a_proj.weight",
        "model.layers.2.self_attn.kv_a_proj_with_mqa.weight",
        "model.layers.2.input_layernorm.weight",
        "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.expert_bias",
        "model.layers.3.mlp.shared_expert.down_proj.weight",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)tensor(f.w, names[i]);
    }
    const csn_tensor *t = tensor(f.w, "model.layers.1.mlp.expert_bias");
    assert_string_equal(t->dtype->name, "f32");
    assert_int_equal(t->nbytes, 32);
    for (uint32_t i = 1; i < f.w->dir.n; i++) { /* in the order of the file */
        assert_true(f.w->dir.tensors[i - 1].offset < f.w->dir.tensors[i].offset);
    }
    end(&f);
}

static void opens_k3(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-k3.waste");
    ASSERT_OK(open_it(&f), &f.err);
    const csn_arch *a = &f.w->arch;
    ASSERT_STR(a->arch_name, "kimi-k3");
    ASSERT_STR(f.w->prefix, "language_model.");
    assert_int_equal(a->hidden_act, CSN_ACT_SITU);
    assert_true(a->activation_situ_beta == 4.0 && a->activation_situ_linear_beta == 25.0);
    assert_true(a->has_kda_gate_lower_bound && a->kda_gate_lower_bound == -5.0);
    assert_int_equal(a->attn_res_block_size, 2);
    assert_int_equal(a->moe.routed_expert_hidden_size, 64);
    assert_true(a->moe.has_latent_norm);
    assert_int_equal(a->mla.q_lora_rank, 48);
    assert_int_equal(f.w->expert_hidden, 64);
    assert_int_equal(f.w->expert_width, 72);
    (void)tensor(f.w, "model.layers.0.self_attention_res_norm.weight");
    (void)tensor(f.w, "model.output_attn_res_proj.weight");
    (void)tensor(f.w, "model.layers.1.mlp.routed_expert_down_proj.weight");
    (void)tensor(f.w, "model.layers.2.self_attn.g_proj.weight");
    (void)tensor(f.w, "model.layers.0.kda_attn.g_proj.weight");
    (void)tensor(f.w, "vision_tower.encoder.layers.0.fc0.weight"); /* outside of the prefix */
    end(&f);
}

static void opens_deepseek(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-rope.waste");
    ASSERT_OK(open_it(&f), &f.err);
    const csn_arch *a = &f.w->arch;
    ASSERT_STR(a->arch_name, "DeepseekV3ForCausalLM");
    assert_true(a->mla.present && !a->mla.nope && a->mla.rope_interleave);
    assert_true(a->yarn.present && a->yarn.factor == 32.0f && a->yarn.beta_fast == 1.0f);
    assert_true(a->yarn.has_mscale_all_dim && a->yarn.mscale_all_dim == 1.0f);
    assert_true(a->yarn.attention_factor == 1.0f);
    assert_int_equal(a->max_position_embeddings, 32 * 4096);
    assert_true(a->rope_theta == 50000.0);
    end(&f);
}

static void opens_all_nine(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t stages, entries, bits, hidden, vocab;
    } all[] = {
        {"vq3r-base.waste", 3, 256, 8, 128, 256}, {"vq3r-tok.waste", 3, 256, 8, 128, 316},
        {"vq3r-rope.waste", 3, 256, 8, 128, 256}, {"vq2r.waste", 2, 256, 8, 128, 256},
        {"vq4p.waste", 4, 64, 6, 128, 256},       {"vq3r-odd.waste", 3, 256, 8, 136, 250},
        {"vq3r-k3.waste", 3, 256, 8, 128, 256},   {"vq4p-k3.waste", 4, 64, 6, 128, 256},
        {"vq3r-q3g.waste", 3, 256, 8, 128, 256},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        fixture f;
        begin(&f, all[i].name);
        ASSERT_OK(open_it(&f), &f.err);
        assert_int_equal(f.w->stages, all[i].stages);
        assert_int_equal(f.w->entries, all[i].entries);
        assert_int_equal(f.w->index_bits, all[i].bits);
        assert_int_equal(f.w->index_block, 64);
        assert_int_equal(f.w->arch.hidden_size, all[i].hidden);
        assert_int_equal(f.w->arch.vocab_size, all[i].vocab);
        end(&f);
    }
}

static void payload_and_scales_are_read_without_their_gap(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    memory_fs_node *trunk = warp_node(&f.fs, "trunk.bin");
    size_t end_of_file = trunk->len;
    uint8_t *longer = malloc(end_of_file + 7 + 512);
    memcpy(longer, trunk->bytes, end_of_file); /* the scales of embed_tokens move behind all */
    memset(longer + end_of_file, 0, 7);
    memcpy(longer + end_of_file + 7, trunk->bytes + 32768, 512);
    warp_put(&f.fs, "trunk.bin", longer, end_of_file + 7 + 512);
    warp_edit(&f.fs, "\"scale_off\": 32768", "\"scale_off\": 386159");
    ASSERT_OK(open_it(&f), &f.err);
    const csn_tensor *t = tensor(f.w, "model.embed_tokens.weight");
    assert_int_equal(t->nbytes, 33280);
    uint8_t *bytes = malloc(33280);
    ASSERT_OK(csn_warp_read_tensor(f.w, (uint32_t)(t - f.w->dir.tensors), bytes, &f.err), &f.err);
    assert_memory_equal(bytes, longer, 33280);
    free(bytes);
    free(longer);
    end(&f);
}

static const uint8_t *record_of(fixture *f, uint32_t i_bank, uint32_t expert) {
    const csn_warp_bank *b = &f->w->banks[i_bank];
    char name[64];
    (void)snprintf(name, sizeof(name), "%.*s", CSN_STR_ARGS(b->file_name));
    return warp_node(&f->fs, name)->bytes + expert * b->stride;
}

static void check_weight(const csn_vq_matrix *m, uint32_t row, uint32_t col,
                         const uint32_t *indices, float weight) {
    float *values = malloc(m->cols * sizeof(float));
    for (uint32_t s = 0; s < m->books->stages; s++) {
        assert_int_equal(csn_vq_index(m->books, csn_vq_vector(m, row, col / 8), s), indices[s]);
    }
    csn_vq_decode_row(m, row, values);
    assert_float_equal(values[col], weight, 1e-6);
    free(values);
}

static void weights_are_those_of_the_readme(void **state) {
    (void)state;
    fixture f;
    csn_warp_expert e;
    begin(&f, "vq3r-base.waste");
    ASSERT_OK(open_it(&f), &f.err);
    const uint8_t *r = record_of(&f, 0, 3);
    assert_int_equal(csn_get32(r + 36), 3241933235);
    ASSERT_OK(csn_warp_record(f.w, &f.w->banks[0], 3, r, true, &e, &f.err), &f.err);
    check_weight(&e.m[CSN_WARP_GATE], 63, 127, (uint32_t[]){191, 83, 20}, -0.001141131f);
    check_weight(&e.m[CSN_WARP_UP], 7, 19, (uint32_t[]){144, 198, 229}, 0.4299012f);
    check_weight(&e.m[CSN_WARP_DOWN], 126, 61, (uint32_t[]){131, 92, 12}, -0.1620872f);
    assert_int_equal(e.m[CSN_WARP_DOWN].rows, 128);
    assert_int_equal(e.m[CSN_WARP_DOWN].cols, 64);
    end(&f);
}

/* ---- records ---- */

static void damaged_records_are_refused(void **state) {
    (void)state;
    static const struct {
        unsigned at, nbytes;
        uint32_t value;
        caisson_status code;
    } cases[] = {
        {0, 4, 0x42555357, CAISSON_E_PARSE}, /* magic of another file */
        {4, 2, 2, CAISSON_E_PARSE},          /* layer */
        {6, 2, 4, CAISSON_E_PARSE},          /* expert */
        {8, 1, 0, CAISSON_E_PARSE},          /* fmt */
        {8, 1, 8, CAISSON_E_PARSE},          /* packed, where indices are bytes */
        {8, 1, 6, CAISSON_E_UNSUPPORTED},    /* SUB1 */
        {10, 2, 9, CAISSON_E_PARSE},         /* the books of another layer */
        {12, 2, 1, CAISSON_E_UNSUPPORTED},   /* shared low-rank block */
        {16, 4, 2, CAISSON_E_PARSE},         /* pages */
        {16, 4, 0, CAISSON_E_PARSE},
        {20, 4, 0, CAISSON_E_PARSE}, /* gate */
        {20, 4, 52, CAISSON_E_PARSE},
        {24, 4, 48, CAISSON_E_PARSE}, /* up: before it, into it, one short */
        {24, 4, 3119, CAISSON_E_PARSE},
        {24, 4, UINT32_MAX, CAISSON_E_PARSE},
        {28, 4, 6191, CAISSON_E_PARSE}, /* down */
        {28, 4, 0, CAISSON_E_PARSE},
        {32, 4, 9263, CAISSON_E_PARSE}, /* scales */
        {32, 4, 12288 - 511, CAISSON_E_PARSE},
        {32, 4, 12288, CAISSON_E_PARSE},
        {32, 4, UINT32_MAX, CAISSON_E_PARSE},
        {36, 4, 0, CAISSON_E_HASH},            /* checksum */
        {48, 1, 0xff, CAISSON_E_HASH},         /* payload */
        {9264 + 511, 1, 0x01, CAISSON_E_HASH}, /* its last byte */
    };
    fixture f;
    csn_warp_expert e;
    begin(&f, "vq3r-base.waste");
    ASSERT_OK(open_it(&f), &f.err);
    uint8_t *r = malloc(12288);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memcpy(r, record_of(&f, 0, 3), 12288);
        for (unsigned k = 0; k < cases[i].nbytes; k++) {
            r[cases[i].at + k] = (uint8_t)(cases[i].value >> 8 * k);
        }
        ASSERT_STATUS(csn_warp_record(f.w, &f.w->banks[0], 3, r, true, &e, &f.err), cases[i].code);
        assert_string_equal(f.err.section, "experts");
        assert_string_equal(f.err.tensor, "model.layers.1.mlp.experts.3");
        assert_string_equal(f.err.file, "m.waste/experts-L1.bin");
        assert_true(f.err.has_offset && f.err.offset >= 3 * 12288);
        assert_true(f.err.want[0] != '\0' && f.err.got[0] != '\0');
        if (cases[i].code == CAISSON_E_HASH) { /* without checksums: an answer, as elsewhere */
            ASSERT_OK(csn_warp_record(f.w, &f.w->banks[0], 3, r, false, &e, &f.err), &f.err);
        }
    }
    free(r);
    end(&f);
}

static void what_means_nothing_is_accepted(void **state) {
    (void)state;
    fixture f;
    csn_warp_expert e;
    begin(&f, "vq3r-base.waste");
    ASSERT_OK(open_it(&f), &f.err);
    uint8_t *r = malloc(12288);
    memcpy(r, record_of(&f, 0, 3), 12288);
    r[8] = 5;                     /* fmt of two stages */
    r[9] = 255;                   /* flags */
    r[14] = r[15] = 1;            /* reserved */
    memset(r + 40, 0xff, 8);      /* reserved */
    r[9264 + 512] = r[12287] = 7; /* padding */
    ASSERT_OK(csn_warp_record(f.w, &f.w->banks[0], 3, r, true, &e, &f.err), &f.err);
    csn_put16(r + 9264, 0x7c00);
    csn_put32(r + 36, csn_crc32(r + 48, 9264 + 512 - 48));
    ASSERT_STATUS(csn_warp_record(f.w, &f.w->banks[0], 3, r, true, &e, &f.err), CAISSON_E_PARSE);
    assert_int_equal(f.err.offset, 3 * 12288 + 9264); /* an infinite scale */
    free(r);
    end(&f);
}

static void crc_is_that_of_zlib(void **state) {
    (void)state;
    assert_int_equal(csn_crc32("123456789", 9), 0xCBF43926);
    assert_int_equal(csn_crc32("", 0), 0);
}

static void indices_stay_inside_small_books(void **state) {
    (void)state;
    fixture f;
    csn_warp_expert e;
    begin(&f, "vq3r-base.waste");
    warp_edit(&f.fs, "\"entries\": 256", "\"entries\": 128");
    warp_put_books(&f.fs, 27, 128);
    ASSERT_OK(open_it(&f), &f.err);
    uint8_t *r = malloc(12288);
    memcpy(r, record_of(&f, 0, 3), 12288);
    memset(r + 48, 127, 9264 - 48);
    ASSERT_OK(csn_warp_record(f.w, &f.w->banks[0], 3, r, false, &e, &f.err), &f.err);
    r[6191] = 128; /* the last of up */
    ASSERT_STATUS(csn_warp_record(f.w, &f.w->banks[0], 3, r, false, &e, &f.err), CAISSON_E_PARSE);
    assert_int_equal(f.err.offset, 3 * 12288 + 6191);
    assert_string_equal(f.err.want, "127");
    assert_string_equal(f.err.got, "128");
    free(r);
    end(&f);
}

/* ---- manifests ---- */

static void damaged_manifests_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
        caisson_status code;
        const char *section, *tensor;
    } cases[] = {
        /* the file */
        {"\"format_version\": 0", "\"format_version\": 1", CAISSON_E_VERSION, "", "format_version"},
        {"\"format_version\": 0", "\"format_version\": \"0\"", CAISSON_E_VERSION, "",
         "format_version"},
        {"\"format_version\": 0", "\"format_version\": 0.0", CAISSON_E_VERSION, "",
         "format_version"},
        {"\"format_version\": 0", "\"format_version\": -1", CAISSON_E_VERSION, "",
         "format_version"},
        {"\"format_version\": 0", "\"x\": 0", CAISSON_E_VERSION, "", "format_version"},
        {"{", "[", CAISSON_E_PARSE, "", ""},
        {"\"format_version\": 0", "\"format_version\": 0, \"format_version\": 0", CAISSON_E_PARSE,
         "", NULL}, /* readers differ in which one they take */
        {"\"tensor_prefix\": \"\"", "\"tensor_prefix\": 1", CAISSON_E_PARSE, "config",
         "tensor_prefix"},
        {"\"tensor_prefix\": \"\"",
         "\"tensor_prefix\": \"0123456789012345678901234567890123456789012345678901234567890123\"",
         CAISSON_E_LIMIT, "config", "tensor_prefix"},
        /* config */
        {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 0", CAISSON_E_PARSE, "config",
         "num_hidden_layers"},
        {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": 129", CAISSON_E_PARSE, "config",
         "num_hidden_layers"},
        {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": -1", CAISSON_E_PARSE, "config",
         "num_hidden_layers"},
        {"\"num_hidden_layers\": 4", "\"num_hidden_layers\": \"4\"", CAISSON_E_PARSE, "config",
         "num_hidden_layers"},
        {"\"hidden_size\": 128", "\"hidden_size\": 4294967424", CAISSON_E_PARSE, "config",
         "hidden_size"},
        {"\"num_experts\": 8", "\"num_experts\": 65537", CAISSON_E_PARSE, "config", "num_experts"},
        {"\"num_experts_per_token\": 2", "\"num_experts_per_token\": 9", CAISSON_E_PARSE, "config",
         "num_experts_per_token"},
        {"\"num_experts_per_token\": 2", "\"num_experts_per_token\": 0", CAISSON_E_PARSE, "config",
         "num_experts_per_token"},
        {"\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 5", CAISSON_E_PARSE, "config",
         "first_k_dense_replace"},
        {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 0", CAISSON_E_PARSE, "config",
         "rms_norm_eps"},
        {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1", CAISSON_E_PARSE, "config",
         "rms_norm_eps"},
        {"\"mla_use_nope\": true", "\"mla_use_nope\": 1", CAISSON_E_PARSE, "config",
         "mla_use_nope"},
        {"\"mla_use_nope\": true", "\"mla_use_nope\": null", CAISSON_E_PARSE, "config",
         "mla_use_nope"},
        {"\"moe_router_activation_func\": \"sigmoid\"",
         "\"moe_router_activation_func\": \"softmax\"", CAISSON_E_UNSUPPORTED, "config",
         "moe_router_activation_func"},
        {"\"model_type\"", "\"hidden_act\": \"gelu\", \"model_type\"", CAISSON_E_UNSUPPORTED,
         "config", "hidden_act"},
        {"\"model_type\"", "\"hidden_act\": \"situ\", \"activation_situ_beta\": 0, \"model_type\"",
         CAISSON_E_PARSE, "config", "activation_situ_beta"},
        {"\"model_type\"",
         "\"hidden_act\": \"situ\", \"activation_situ_beta\": 1e-50, \"model_type\"",
         CAISSON_E_PARSE, "config", "activation_situ_beta"},
        {"\"eos_token_id\": 2", "\"eos_token_id\": 256", CAISSON_E_PARSE, "config", "eos_token_id"},
        {"\"eos_token_id\": 2", "\"eos_token_id\": [2, -1]", CAISSON_E_PARSE, "config",
         "eos_token_id"},
        {"    1,\n    2,\n    4", "0, 2, 4", CAISSON_E_PARSE, "config",
         "linear_attn_config.kda_layers"},
        {"    1,\n    2,\n    4", "1, 2, 5", CAISSON_E_PARSE, "config",
         "linear_attn_config.kda_layers"},
        {"    1,\n    2,\n    4", "1, 2, 2", CAISSON_E_PARSE, "config",
         "linear_attn_config.kda_layers"},
        {"\"short_conv_kernel_size\": 4", "\"short_conv_kernel_size\": 65", CAISSON_E_PARSE,
         "config", "linear_attn_config"},
        {"\"kv_lora_rank\": 32", "\"kv_lora_rank\": null", CAISSON_E_PARSE, "config",
         "kv_lora_rank"},
        {"\"model_type\"", "\"n_group\": 3, \"topk_group\": 1, \"model_type\"", CAISSON_E_PARSE,
         "config", "n_group"},
        {"\"model_type\"", "\"num_expert_group\": 3, \"topk_group\": 1, \"model_type\"",
         CAISSON_E_PARSE, "config", "n_group"},
        {"\"model_type\"", "\"mla_use_output_gate\": false, \"model_type\"", CAISSON_E_MISSING,
         "trunk", "model.layers.2.self_attn.g_proj.weight"}, /* a flag counts by its presence */
        {"\"num_heads\"", "\"use_full_rank_gate\": false, \"num_heads\"", CAISSON_E_MISSING,
         "trunk", "model.layers.0.kda_attn.g_proj.weight"},
        /* expert_quant */
        {"\"stages\": 3", "\"stages\": 0", CAISSON_E_PARSE, "expert_quant", "stages"},
        {"\"stages\": 3", "\"stages\": 9", CAISSON_E_PARSE, "expert_quant", "stages"},
        {"\"vec_dim\": 8", "\"vec_dim\": 4", CAISSON_E_UNSUPPORTED, "expert_quant", "vec_dim"},
        {"\"entries\": 256", "\"entries\": 257", CAISSON_E_PARSE, "expert_quant", "entries"},
        {"\"entries\": 256", "\"entries\": 0", CAISSON_E_PARSE, "expert_quant", "entries"},
        {"\"index_block\": 64", "\"index_block\": 32", CAISSON_E_UNSUPPORTED, "expert_quant",
         "index_block"},
        {"\"index_block\": 64", "\"index_bits\": 6", CAISSON_E_UNSUPPORTED, "expert_quant",
         "index_bits"},
        {"\"index_block\": 64", "\"index_bits\": 4", CAISSON_E_UNSUPPORTED, "expert_quant",
         "index_bits"},
        {"\"VQ3R\"", "\"VQ4P\"", CAISSON_E_PARSE, "expert_quant", "fmt"},
        {"\"VQ3R\"", "\"SUB1\"", CAISSON_E_UNSUPPORTED, "expert_quant", "fmt"},
        {"\"VQ3R\"", "\"Q4_K\"", CAISSON_E_UNSUPPORTED, "expert_quant", "fmt"},
        /* layers */
        {"\"1\": {", "\"0\": {", CAISSON_E_MISSING, "layers", "1"},
        {"\"1\": {", "\"01\": {", CAISSON_E_MISSING, "layers", "1"},
        {"\"1\": {", "\"9\": {}, \"1\": {", CAISSON_E_PARSE, "layers", ""},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"../experts-L1.bin\"", CAISSON_E_PARSE,
         "layers", "../experts-L1.bin"},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"..\"", CAISSON_E_PARSE, "layers", ".."},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"/etc/passwd\"", CAISSON_E_PARSE, "layers",
         "/etc/passwd"},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"a\\\\b\"", CAISSON_E_PARSE, "layers", "a\\b"},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"experts-L1.bin\\u0000x\"", CAISSON_E_PARSE,
         "layers", NULL},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"\"", CAISSON_E_PARSE, "layers", NULL},
        {"\"file\": \"experts-L2.bin\"", "\"file\": \"experts-L1.bin\"", CAISSON_E_PARSE, "layers",
         "experts-L1.bin"},
        {"\"file\": \"experts-L1.bin\"", "\"file\": \"absent.bin\"", CAISSON_E_IO, "layers", "1"},
        {"\"experts\": 8", "\"experts\": 16", CAISSON_E_PARSE, "layers", "1"},
        {"\"bytes\": 98304", "\"bytes\": 98305", CAISSON_E_BOUNDS, "layers", "1"},
        {"\"bytes\": 98304", "\"bytes\": 0", CAISSON_E_BOUNDS, "layers", "1"},
        {"\"bytes\": 98304", "\"bytes\": 65536", CAISSON_E_BOUNDS, "layers", "1"},  /* too short */
        {"\"bytes\": 98304", "\"bytes\": 196608", CAISSON_E_BOUNDS, "layers", "1"}, /* the file */
        {"\"bytes\": 98304", "\"bytes\": 98312", CAISSON_E_BOUNDS, "layers", "1"},  /* no page */
        {"\"bytes\": 98304", "\"bytes\": 18446744073709551616", CAISSON_E_PARSE, "layers", NULL},
        {"\"codebook_base\": 18", "\"codebook_base\": 19", CAISSON_E_BOUNDS, "layers",
         "codebook_base"},
        {"\"codebook_base\": 18", "\"codebook_base\": 2147483647", CAISSON_E_BOUNDS, "layers",
         "codebook_base"},
        {"\"codebook_base\": 18", "\"codebook_base\": null", CAISSON_E_PARSE, "layers", NULL},
        {"\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 60", CAISSON_E_BOUNDS,
         "layers", ""},
        {"\"moe_intermediate_size\": 64", "\"moe_intermediate_size\": 1048576", CAISSON_E_BOUNDS,
         "layers", "1"},
        /* trunk */
        {"\"fmt\": 2", "\"fmt\": 1", CAISSON_E_BOUNDS, "trunk", "model.embed_tokens.weight"},
        {"\"fmt\": 2", "\"fmt\": 9", CAISSON_E_UNSUPPORTED, "trunk", "model.embed_tokens.weight"},
        {"\"fmt\": 2", "\"fmt\": 3", CAISSON_E_BOUNDS, "trunk", "model.embed_tokens.weight"},
        {"\"group\": 128", "\"group\": 64", CAISSON_E_UNSUPPORTED, "trunk",
         "model.embed_tokens.weight"},
        {"\"group\": 128", "\"group\": 0", CAISSON_E_UNSUPPORTED, "trunk",
         "model.embed_tokens.weight"},
        {"\"scale_off\": 32768", "\"scale_off\": 386152", CAISSON_E_BOUNDS, "trunk",
         "model.embed_tokens.weight"},
        {"\"scale_off\": 32768", "\"scale_of\": 32768", CAISSON_E_PARSE, "trunk",
         "model.embed_tokens.weight"},
        {"\"scale_off\": 32768", "\"scale_off\": 33000", CAISSON_E_BOUNDS, "trunk",
         NULL}, /* twice */
        {"\"off\": 352872", "\"off\": 353384", CAISSON_E_BOUNDS, "trunk", "lm_head.weight"},
        {"\"off\": 352872", "\"off\": 18446744073709551615", CAISSON_E_BOUNDS, "trunk",
         "lm_head.weight"},
        {"\"off\": 352872", "\"off\": -1", CAISSON_E_PARSE, "trunk", "78.off"},
        {"\"shape\": [\n    256,\n    128\n   ]", "\"shape\": []", CAISSON_E_PARSE, "trunk",
         "model.embed_tokens.weight"},
        {"\"shape\": [\n    256,\n    128\n   ]", "\"shape\": [1, 1, 1, 256, 128]", CAISSON_E_PARSE,
         "trunk", "model.embed_tokens.weight"},
        {"\"shape\": [\n    256,\n    128\n   ]", "\"shape\": [0, 128]", CAISSON_E_PARSE, "trunk",
         "model.embed_tokens.weight"},
        {"\"shape\": [\n    256,\n    128\n   ]",
         "\"shape\": [67108864, 67108864, 67108864, 67108864]", CAISSON_E_BOUNDS, "trunk",
         "model.embed_tokens.weight"},
        {"\"shape\": [\n    256,\n    128\n   ]", "\"shape\": [512, 128]", CAISSON_E_BOUNDS,
         "trunk", "model.embed_tokens.weight"},
        {"\"bytes\": 33280", "\"bytes\": 33281", CAISSON_E_BOUNDS, "trunk",
         "model.embed_tokens.weight"},
        {"\"name\": \"model.norm.weight\"", "\"name\": \"lm_head.weight\"", CAISSON_E_PARSE,
         "directory", "lm_head.weight"},
        {"\"name\": \"model.norm.weight\"", "\"name\": \"\"", CAISSON_E_PARSE, "trunk", NULL},
        {"\"trunk\": [", "\"trunk\": [], \"x\": [", CAISSON_E_PARSE, "trunk", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        begin(&f, "vq3r-base.waste");
        warp_edit(&f.fs, cases[i].from, cases[i].to);
        caisson_status status = open_it(&f);
        if (status != cases[i].code ||
            (strcmp(f.err.section, cases[i].section) != 0 && status != CAISSON_OK) ||
            (cases[i].tensor != NULL && strcmp(f.err.tensor, cases[i].tensor) != 0)) {
            char line[1024];
            fail_msg("%s -> %s: %s", cases[i].from, cases[i].to,
                     status == CAISSON_OK ? "opened"
                                          : caisson_error_format(&f.err, line, sizeof(line)));
        }
        f.w = NULL;
        end(&f);
    }
}

/* fmt 1: nobody writes it, but the format has it: binary16, row by row, no scales. */
static void f16_in_the_trunk(void **state) {
    static const char f32[] =
        "\"fmt\": 0,\n   \"off\": 352360,\n   \"shape\": [\n    128\n   ],\n   "
        "\"bytes\": 512";
    (void)state;
    fixture f;
    uint8_t bytes[256];
    begin(&f, "vq3r-base.waste");
    warp_edit(&f.fs, f32, "\"fmt\": 1, \"off\": 352360, \"shape\": [128], \"bytes\": 256");
    ASSERT_OK(open_it(&f), &f.err);
    const csn_tensor *t = csn_directory_find(&f.w->dir, CSN_STR("model.norm.weight"));
    assert_string_equal(t->dtype->name, "f16");
    assert_int_equal(t->nbytes, 256);
    ASSERT_OK(csn_warp_read_tensor(f.w, (uint32_t)(t - f.w->dir.tensors), bytes, &f.err), &f.err);
    assert_memory_equal(bytes, warp_node(&f.fs, "trunk.bin")->bytes + 352360, 256);
    end(&f);
}

static void rotary_rules_are_those_of_the_format(void **state) {
    (void)state;
    static const char all_dim[] = "\"mscale_all_dim\": 1.0,";
    static const struct {
        const char *from, *to;
        caisson_status code;
        bool has_yarn;
    } cases[] = {
        {"\"type\": \"yarn\"", "\"rope_type\": \"yarn\"", CAISSON_OK, true},
        {"\"type\": \"yarn\"", "\"type\": \"linear\"", CAISSON_E_UNSUPPORTED, false},
        {"\"type\": \"yarn\"", "\"kind\": \"yarn\"", CAISSON_E_UNSUPPORTED, false},
        {"\"factor\": 32.0", "\"factor\": 1", CAISSON_OK, false},
        {"\"rope_scaling\"", "\"rope_scaling\": null, \"x\"", CAISSON_OK, false},
        {"\"rope_scaling\"", "\"rope_scaling\": {}, \"x\"", CAISSON_OK, false},
        {"\"rope_scaling\"", "\"x\"", CAISSON_OK, false},
        {all_dim, "\"mscale_all_dim\": 0.5,", CAISSON_E_UNSUPPORTED, false},
        {"\"rope_scaling\"", "\"mla_use_nope\": false, \"rope_scaling\"", CAISSON_OK, true},
        {"\"type\": \"yarn\"", "\"type\": 3", CAISSON_E_PARSE, false},
        {"\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 7", CAISSON_E_PARSE, false},
        /* what the existing engine passes over, and transformers does not */
        {"\"type\": \"yarn\"", "\"truncate\": true, \"type\": \"yarn\"", CAISSON_OK, true},
        {"\"type\": \"yarn\"", "\"truncate\": false, \"type\": \"yarn\"", CAISSON_E_UNSUPPORTED,
         false},
        {"\"type\": \"yarn\"", "\"attention_factor\": 1.25, \"type\": \"yarn\"",
         CAISSON_E_UNSUPPORTED, false},
        {"\"rope_scaling\"",
         "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 50000.0}, "
         "\"rope_scaling\"",
         CAISSON_OK, true},
        {"\"rope_scaling\"",
         "\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 10000}, \"rope_scaling\"",
         CAISSON_E_UNSUPPORTED, false},
        {"\"rope_scaling\"", "\"rope_parameters\"", CAISSON_E_UNSUPPORTED, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        begin(&f, "vq3r-rope.waste");
        warp_edit(&f.fs, cases[i].from, cases[i].to);
        ASSERT_STATUS(open_it(&f), cases[i].code);
        if (f.w != NULL) {
            assert_int_equal(f.w->arch.yarn.present, cases[i].has_yarn);
        }
        end(&f);
    }
    fixture f;
    begin(&f, "vq3r-rope.waste"); /* without rotation nothing of this is looked at */
    warp_edit(&f.fs, "\"type\": \"yarn\"", "\"type\": \"linear\"");
    warp_edit(&f.fs, "\"rope_scaling\"", "\"mla_use_nope\": true, \"rope_scaling\"");
    ASSERT_OK(open_it(&f), &f.err);
    end(&f);
}

static void flags_count_by_their_presence(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    warp_edit(&f.fs, "\"moe_renormalize\": true", "\"moe_renormalize\": false");
    ASSERT_OK(open_it(&f), &f.err);
    assert_true(f.w->arch.moe.norm_topk_prob);
    end(&f);
    begin(&f, "vq3r-base.waste");
    warp_edit(&f.fs, "\"moe_renormalize\": true,", "");
    ASSERT_OK(open_it(&f), &f.err);
    assert_false(f.w->arch.moe.norm_topk_prob);
    end(&f);
    begin(&f, "vq3r-k3.waste");
    warp_edit(&f.fs, "\"latent_moe_use_norm\": true", "\"latent_moe_use_norm\": null");
    ASSERT_OK(open_it(&f), &f.err);
    assert_true(f.w->arch.moe.has_latent_norm);
    end(&f);
    begin(&f, "vq3r-k3.waste"); /* a gate that would be passed over */
    warp_edit(&f.fs, "\"mla_use_output_gate\": true,", "");
    refused(&f, CAISSON_E_PARSE, "trunk");
}

static void an_inner_config_has_a_prefix(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-k3.waste");
    warp_edit(&f.fs, "\"tensor_prefix\": \"language_model.\"", "\"tensor_prefix\": \"\"");
    warp_edit(&f.fs, "\"config\": {", "\"config\": {\"text_config\": {");
    warp_edit(&f.fs, "\"expert_quant\"", "\"x\": 0}, \"expert_quant\"");
    warp_edit(&f.fs, " },\n \"x\": 0}", " }}");
    ASSERT_OK(open_it(&f), &f.err);
    ASSERT_STR(f.w->prefix, "language_model.");
    (void)tensor(f.w, "model.norm.weight");
    end(&f);
}

/* ---- files ---- */

static void damaged_files_are_refused(void **state) {
    (void)state;
    static const char *const needed[] = {"trunk.bin", "codebooks.bin", "experts-L2.bin"};
    fixture f;
    for (size_t i = 0; i < 3; i++) {
        begin(&f, "vq3r-base.waste");
        memory_fs_drop(warp_node(&f.fs, needed[i]));
        ASSERT_STATUS(open_it(&f), CAISSON_E_IO);
        end(&f);
    }
    begin(&f, "vq3r-base.waste");
    warp_node(&f.fs, "trunk.bin")->len--;
    refused(&f, CAISSON_E_BOUNDS, "trunk");
    begin(&f, "vq3r-base.waste");
    warp_node(&f.fs, "experts-L3.bin")->len--;
    refused(&f, CAISSON_E_BOUNDS, "layers");
    begin(&f, "vq3r-base.waste");
    warp_node(&f.fs, "codebooks.bin")->len--;
    refused(&f, CAISSON_E_BOUNDS, "codebooks");
    begin(&f, "vq3r-base.waste");
    warp_node(&f.fs, "codebooks.bin")->len -= 4112;
    refused(&f, CAISSON_E_BOUNDS, "layers");
    begin(&f, "vq3r-base.waste");
    warp_node(&f.fs, "manifest.json")->len /= 2;
    refused(&f, CAISSON_E_PARSE, "");
    begin(&f, "vq3r-base.waste"); /* nesting without end */
    memset(warp_node(&f.fs, "manifest.json")->bytes, '[', warp_node(&f.fs, "manifest.json")->len);
    ASSERT_STATUS(open_it(&f), CAISSON_E_LIMIT);
    f.w = NULL;
    end(&f);
}

static void damaged_codebooks_are_refused(void **state) {
    (void)state;
    static const struct {
        unsigned at, value;
    } cases[] = {{0, 'X'}, {4, 7}, {6, 8}, {6, 6}, {7, 4}, {8, 1}, {9, 0}, {16 + 1, 0x7c}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fixture f;
        begin(&f, "vq3r-base.waste");
        warp_node(&f.fs, "codebooks.bin")->bytes[26 * 4112 + cases[i].at] = (uint8_t)cases[i].value;
        refused(&f, CAISSON_E_PARSE, "codebooks");
    }
    fixture f;
    begin(&f, "vq3r-base.waste"); /* a book that nobody names may be zeros */
    csn_buf longer = CSN_BUF_INIT(1 << 20);
    memory_fs_node *books = warp_node(&f.fs, "codebooks.bin");
    ASSERT_OK(csn_buf_append(&longer, books->bytes, books->len, &f.err), &f.err);
    ASSERT_OK(csn_buf_reserve(&longer, 4112, &f.err), &f.err);
    memset(longer.ptr + longer.len, 0, 4112);
    warp_put(&f.fs, "codebooks.bin", longer.ptr, longer.len + 4112);
    csn_buf_free(&longer);
    ASSERT_OK(open_it(&f), &f.err);
    end(&f);
}

static void tiny_values_of_codebooks_are_zero(void **state) {
    (void)state;
    assert_true(csn_warp_book_value(0x0400) == 0x1p-14f);
    assert_true(csn_warp_book_value(0x03ff) == 0.0f);
    assert_true(csn_warp_book_value(0x8001) == 0.0f);
    assert_true(csn_warp_book_value(0xc000) == -2.0f);
    fixture f;
    begin(&f, "vq3r-base.waste");
    csn_put16(warp_node(&f.fs, "codebooks.bin")->bytes + 4112 + 16 + 2 * 9, 0x0001);
    csn_put16(warp_node(&f.fs, "codebooks.bin")->bytes + 4112 + 16 + 2 * 10, 0x3c00);
    ASSERT_OK(open_it(&f), &f.err);
    const csn_vq_books *gate = &f.w->banks[0].books[CSN_WARP_GATE];
    assert_true(gate->entry[256 * 8 + 9] == 0.0f);
    assert_true(gate->entry[256 * 8 + 10] == 1.0f); /* stage 1, entry 1, dim 2 */
    assert_true(gate->column[256 * 8 + 2 * 256 + 1] == 1.0f);
    end(&f);
}

static void tied_weights_may_share_bytes(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    warp_edit(&f.fs, "\"off\": 352872", "\"off\": 0");
    warp_edit(&f.fs, "\"scale_off\": 385640", "\"scale_off\": 32768");
    ASSERT_OK(open_it(&f), &f.err);
    assert_int_equal(tensor(f.w, "lm_head.weight")->offset, 0);
    end(&f);
}

static void every_failed_allocation_is_told(void **state) {
    (void)state;
    fixture f;
    begin(&f, "vq3r-base.waste");
    caisson_status status = CAISSON_E_NOMEM;
    for (int64_t n = 0; status != CAISSON_OK; n++) {
        csn_alloc_fail_after(n);
        status = open_it(&f);
        csn_alloc_fail_after(-1);
        if (status != CAISSON_OK) {
            ASSERT_STATUS(status, CAISSON_E_NOMEM);
            assert_int_equal(f.fs.n_open, 0);
        }
    }
    end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_kimi_linear),
        cmocka_unit_test(tensors_have_the_names_of_cmf),
        cmocka_unit_test(opens_k3),
        cmocka_unit_test(opens_deepseek),
        cmocka_unit_test(opens_all_nine),
        cmocka_unit_test(payload_and_scales_are_read_without_their_gap),
        cmocka_unit_test(weights_are_those_of_the_readme),
        cmocka_unit_test(damaged_records_are_refused),
        cmocka_unit_test(what_means_nothing_is_accepted),
        cmocka_unit_test(crc_is_that_of_zlib),
        cmocka_unit_test(indices_stay_inside_small_books),
        cmocka_unit_test(damaged_manifests_are_refused),
        cmocka_unit_test(f16_in_the_trunk),
        cmocka_unit_test(rotary_rules_are_those_of_the_format),
        cmocka_unit_test(flags_count_by_their_presence),
        cmocka_unit_test(an_inner_config_has_a_prefix),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(damaged_codebooks_are_refused),
        cmocka_unit_test(tiny_values_of_codebooks_are_zero),
        cmocka_unit_test(tied_weights_may_share_bytes),
        cmocka_unit_test(every_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
