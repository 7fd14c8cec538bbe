/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON header (CMF 2): checked against its schema (facts 2.2, 7.4, 10.2), unknown keys left
 * alone, and written again for a new file. */
#include "format/cmf/cmf_internal.h"

#include <stdio.h>

#include "base/json_fields.h"
#include "caisson/limits.h"

struct header {
    uint32_t version;
    csn_str quant_type;
    const csn_jval *arch, *chat, *hashes, *skills, *shard, *calibration, *routing;
};

#define H(member, key, type, flags) CSN_JFIELD(struct header, member, key, type, flags)
static const csn_jfield header_fields[] = {
    CSN_JCHECK("format", CSN_JT_STR, 0),
    H(version, "version", CSN_JT_ID, CSN_JF_REQUIRED),
    H(arch, "arch", CSN_JT_OBJECT, CSN_JF_REQUIRED),
    H(quant_type, "quant_type", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JCHECK("provenance", CSN_JT_ANY, 0),
    H(chat, "tokenizer_config", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    H(hashes, "section_hashes", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    H(skills, "skills", CSN_JT_ARRAY, 0),
    H(shard, "shard", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    H(calibration, "calibration", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    H(routing, "routing", CSN_JT_OBJECT, CSN_JF_NULLABLE),
    CSN_JCHECK(CSN_CMF_TENSOR_DIGESTS, CSN_JT_STR, 0), /* read in digests.c */
    CSN_JCHECK(CSN_CMF_SECTION_DIGESTS, CSN_JT_OBJECT, 0),
    CSN_JCHECK(CSN_CMF_REMOVED_SKILLS, CSN_JT_ARRAY, 0), /* read in skills.c */
};

static const csn_jfield skill_fields[] = {
    CSN_JCHECK("id", CSN_JT_STR, CSN_JF_REQUIRED),
    CSN_JCHECK("name", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JCHECK("layers", CSN_JT_ARRAY, 0),
    CSN_JCHECK("selection", CSN_JT_OBJECT, CSN_JF_NULLABLE), /* read in selection.c */
    CSN_JCHECK("input_mask_task", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JCHECK("quality", CSN_JT_ANY, CSN_JF_NULLABLE),
    CSN_JCHECK("base_dir_hash", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JCHECK("base_arch", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JCHECK("task", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JCHECK("provenance", CSN_JT_ANY, CSN_JF_NULLABLE),
};

static const csn_jfield shard_fields[] = {
    CSN_JFIELD(csn_cmf, shard_no, "no", CSN_JT_U32, CSN_JF_REQUIRED),
    CSN_JFIELD(csn_cmf, n_shards, "count", CSN_JT_U32, CSN_JF_REQUIRED),
};

static const csn_jfield calibration_fields[] = {
    CSN_JFIELD(csn_cmf, calibration_temperature, "temperature", CSN_JT_F32, CSN_JF_REQUIRED),
    CSN_JCHECK("ece_before", CSN_JT_F32, CSN_JF_NULLABLE),
    CSN_JCHECK("ece_after", CSN_JT_F32, CSN_JF_NULLABLE),
};

static const csn_jfield routing_fields[] = {
    CSN_JFIELD(csn_cmf, routing_temperature, "temperature", CSN_JT_F32, CSN_JF_REQUIRED),
    CSN_JFIELD(csn_cmf, routing_novelty_theta, "novelty_theta", CSN_JT_F32, CSN_JF_REQUIRED),
    CSN_JCHECK("samples", CSN_JT_U32, CSN_JF_REQUIRED),
    CSN_JCHECK("target_fpr", CSN_JT_F32, CSN_JF_REQUIRED),
};

struct chat {
    csn_str template;
    const csn_jval *eos, *special_tokens;
    uint32_t bos, pad;
};
static const csn_jfield chat_fields[] = {
    CSN_JFIELD(struct chat, template, "chat_template", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(struct chat, eos, "eos_token_ids", CSN_JT_ARRAY, 0),
    CSN_JFIELD(struct chat, bos, "bos_token_id", CSN_JT_ID, CSN_JF_NULLABLE),
    CSN_JFIELD(struct chat, pad, "pad_token_id", CSN_JT_ID, CSN_JF_NULLABLE),
    CSN_JFIELD(struct chat, special_tokens, "special_tokens_map", CSN_JT_OBJECT, CSN_JF_NULLABLE),
};

const char *const csn_cmf_special_tokens[CSN_CMF_N_SPECIAL_TOKENS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token",
};

struct hashes {
    csn_str masks, vocab, index;
};
static const csn_jfield hash_fields[] = {
    CSN_JFIELD(struct hashes, masks, "masks", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(struct hashes, vocab, "vocab", CSN_JT_STR, CSN_JF_NULLABLE),
    CSN_JFIELD(struct hashes, index, "index", CSN_JT_STR, CSN_JF_NULLABLE),
};

/* A token id that int32_t can hold. */
static caisson_status token_id(uint64_t id, const char *key, int32_t *ret, caisson_error *err) {
    if (id > INT32_MAX) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = csn_str_from(key),
                        .what = "token id is out of range", CSN_VALUES(INT32_MAX, id));
    }
    *ret = (int32_t)id;
    return CAISSON_OK;
}

static caisson_status read_special_tokens(csn_chat_bundle *chat, const csn_jval *map,
                                          caisson_error *err) {
    chat->has_special_tokens = map != NULL;
    for (int i = 0; i < CSN_CMF_N_SPECIAL_TOKENS; i++) {
        const csn_jval *v = csn_jval_get(map, csn_cmf_special_tokens[i]);
        if (v != NULL && !csn_jval_str(v, &chat->special_tokens[i])) {
            return csn_jfields_fail(err, "tokenizer_config.special_tokens_map",
                                    csn_str_from(csn_cmf_special_tokens[i]), "not a string",
                                    CSN_STR("string"), v);
        }
    }
    return CAISSON_OK;
}

static caisson_status read_chat(csn_cmf *c, const csn_jval *v, caisson_error *err) {
    struct chat raw = {0};
    uint64_t seen = 0;
    csn_chat_bundle *chat = &c->chat;
    chat->bos_token_id = -1;
    chat->pad_token_id = -1;
    if (v == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_jfields_read(v, chat_fields, CSN_N_FIELDS(chat_fields), "tokenizer_config", &raw,
                             &seen, err));
    chat->present = true;
    chat->chat_template = raw.template;
    CSN_TRY(CSN_ARENA_NEW(&c->arena, csn_jval_len(raw.eos), &chat->eos_token_ids, err));
    for (csn_jiter it = csn_jval_iter(raw.eos); csn_jiter_next(&it);) {
        uint64_t id;
        if (!csn_jval_u64(it.value, &id)) {
            return csn_jfields_fail(err, "tokenizer_config", CSN_STR("eos_token_ids"),
                                    "not token ids", CSN_STR("integers from 0 on"), it.value);
        }
        CSN_TRY(
            token_id(id, "tokenizer_config.eos_token_ids", &chat->eos_token_ids[chat->n_eos], err));
        chat->n_eos++;
    }
    if ((seen >> 2 & 1) != 0) {
        CSN_TRY(token_id(raw.bos, "tokenizer_config.bos_token_id", &chat->bos_token_id, err));
    }
    if ((seen >> 3 & 1) != 0) {
        CSN_TRY(token_id(raw.pad, "tokenizer_config.pad_token_id", &chat->pad_token_id, err));
    }
    return read_special_tokens(chat, raw.special_tokens, err);
}

bool csn_cmf_parse_hash(csn_str text, uint64_t *ret) {
    uint64_t h = 0;
    if (text.len == 0 || text.len > 16) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        char ch = text.ptr[i];
        unsigned d = ch >= '0' && ch <= '9'   ? (unsigned)(ch - '0')
                     : ch >= 'a' && ch <= 'f' ? (unsigned)(ch - 'a') + 10
                     : ch >= 'A' && ch <= 'F' ? (unsigned)(ch - 'A') + 10
                                              : 16;
        if (d == 16) {
            return false;
        }
        h = h << 4 | d;
    }
    *ret = h;
    return true;
}

/* A hash may only stand for a section that is there: for an absent one (offset 0) there must be
 * none, for an empty one it must be zero. A malformed text is left to verify. */
static caisson_status read_section_hashes(csn_cmf *c, const csn_jval *v, caisson_error *err) {
    struct hashes raw = {0};
    if (v == NULL) {
        return CAISSON_OK;
    }
    CSN_TRY(csn_jfields_read(v, hash_fields, CSN_N_FIELDS(hash_fields), "section_hashes", &raw,
                             NULL, err));
    c->section_hash[CSN_CMF_MASKS] = raw.masks;
    c->section_hash[CSN_CMF_VOCAB] = raw.vocab;
    c->section_hash[CSN_CMF_INDEX] = raw.index;
    for (int i = CSN_CMF_MASKS; i <= CSN_CMF_INDEX; i++) {
        uint64_t h = 0;
        csn_str text = c->section_hash[i];
        if (text.ptr == NULL || c->envelope.len[i] != 0) {
            continue;
        }
        if (i == CSN_CMF_VOCAB && csn_cmf_is_skill_file(c)) {
            c->section_hash[i] = (csn_str){0}; /* the reference leaves the specialist's there */
            continue;
        }
        if (c->envelope.off[i] == 0 || !csn_cmf_parse_hash(text, &h) || h != 0) {
            return CSN_FAIL(err, CAISSON_E_PARSE, .tensor = CSN_STR("section_hashes"),
                            .what = "hash of a section that is not there",
                            .want = csn_str_from(csn_cmf_section_names[i]), .got = text);
        }
    }
    return CAISSON_OK;
}

static caisson_status check_skills(const csn_jval *skills, caisson_error *err) {
    for (csn_jiter it = csn_jval_iter(skills); csn_jiter_next(&it);) {
        CSN_TRY(csn_jfields_read(it.value, skill_fields, CSN_N_FIELDS(skill_fields), "skills", NULL,
                                 NULL, err));
        for (csn_jiter k = csn_jval_iter(csn_jval_get(it.value, "layers")); csn_jiter_next(&k);) {
            uint64_t u;
            if (!csn_jval_u64(k.value, &u)) {
                return csn_jfields_fail(err, "skills", CSN_STR("layers"), "not layer numbers",
                                        CSN_STR("integers"), k.value);
            }
        }
    }
    return CAISSON_OK;
}

static caisson_status check_temperature(float t, const csn_jval *object, const char *where,
                                        caisson_error *err) {
    return t > 0.0f ? CAISSON_OK
                    : csn_jfields_fail(err, where, CSN_STR("temperature"), "not above 0",
                                       CSN_STR("a positive number"),
                                       csn_jval_get(object, "temperature"));
}

static bool is_quant_type(csn_str s) {
    static const char *const labels[] = {"Q8_ROW", "Q4_BLOCK", "Q8_2F", "VBIT",
                                         "BF16",   "F16",      "F32"};
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        if (csn_str_is(s, labels[i])) {
            return true;
        }
    }
    return false;
}

caisson_status csn_cmf_parse_header(csn_cmf *c, csn_str text, caisson_error *err) {
    struct header h = {0};
    CSN_TRY(csn_json_parse(text, 0, &c->header_doc, err));
    c->header = csn_json_root(c->header_doc);
    CSN_TRY(
        csn_jfields_read(c->header, header_fields, CSN_N_FIELDS(header_fields), "", &h, NULL, err));
    CSN_TRY(csn_arch_parse(h.arch, &c->arena, &c->arch, err));
    if (!is_quant_type(h.quant_type)) {
        return CSN_FAIL(
            err, CAISSON_E_PARSE, .tensor = CSN_STR("quant_type"), .what = "unknown label",
            CSN_TEXTS(CSN_STR("Q8_ROW, Q4_BLOCK, Q8_2F, VBIT, BF16, F16 or F32"), h.quant_type));
    }
    c->quant_type = h.quant_type;
    CSN_TRY(read_chat(c, h.chat, err));
    CSN_TRY(read_section_hashes(c, h.hashes, err));
    CSN_TRY(check_skills(h.skills, err));
    if (h.shard != NULL) {
        c->has_shard_block = true;
        CSN_TRY(csn_jfields_read(h.shard, shard_fields, CSN_N_FIELDS(shard_fields), "shard", c,
                                 NULL, err));
    }
    if (h.calibration != NULL) {
        CSN_TRY(csn_jfields_read(h.calibration, calibration_fields,
                                 CSN_N_FIELDS(calibration_fields), "calibration", c, NULL, err));
        CSN_TRY(check_temperature(c->calibration_temperature, h.calibration, "calibration", err));
    }
    if (h.routing != NULL) {
        CSN_TRY(csn_jfields_read(h.routing, routing_fields, CSN_N_FIELDS(routing_fields), "routing",
                                 c, NULL, err));
        CSN_TRY(check_temperature(c->routing_temperature, h.routing, "routing", err));
    }
    return CAISSON_OK;
}

/* The edit of a key, if there is one. Hashes and digests are the writer's: always left out. */
static const csn_cmf_header_edit *find_edit(const csn_cmf_header_edit *edits, size_t n,
                                            csn_str key) {
    static const csn_cmf_header_edit sealed[] = {{.key = "section_hashes"},
                                                 {.key = CSN_CMF_TENSOR_DIGESTS},
                                                 {.key = CSN_CMF_SECTION_DIGESTS}};
    for (size_t i = 0; i < CSN_N_FIELDS(sealed); i++) {
        if (csn_str_is(key, sealed[i].key)) {
            return &sealed[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (csn_str_is(key, edits[i].key)) {
            return &edits[i];
        }
    }
    return NULL;
}

/* arch NULL: as the header has it. */
static void write_edited(const csn_jval *header, const csn_arch *arch,
                         const csn_cmf_header_edit *edits, size_t n, csn_jw *w) {
    csn_jw_object(w);
    for (csn_jiter it = csn_jval_iter(header); csn_jiter_next(&it);) {
        const csn_cmf_header_edit *e = find_edit(edits, n, it.key);
        if (e != NULL && e->json.len == 0) {
            continue;
        }
        csn_jw_key(w, it.key);
        if (e != NULL) {
            csn_jw_json(w, e->json);
        } else if (arch != NULL && csn_str_is(it.key, "arch")) {
            csn_arch_write(arch, w);
        } else {
            csn_jw_value(w, it.value);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (edits[i].json.len > 0 && csn_jval_get(header, edits[i].key) == NULL) {
            csn_jw_key(w, csn_str_from(edits[i].key));
            csn_jw_json(w, edits[i].json);
        }
    }
    csn_jw_object_end(w);
}

void csn_cmf_header_edit_json(const csn_jval *header, const csn_cmf_header_edit *edits, size_t n,
                              csn_jw *w) {
    write_edited(header, NULL, edits, n, w);
}

void csn_cmf_header_edit_write(const csn_cmf *c, const csn_cmf_header_edit *edits, size_t n,
                               csn_jw *w) {
    write_edited(c->header, &c->arch, edits, n, w);
}

void csn_cmf_header_write(const csn_cmf *c, csn_str quant_type, csn_jw *w) {
    char label[32]; /* one of the format's, which need no escape */
    csn_cmf_header_edit edit = {.key = "quant_type"};
    if (quant_type.len > 0 && quant_type.len < sizeof(label) - 2) {
        int len = snprintf(label, sizeof(label), "\"%.*s\"", CSN_STR_ARGS(quant_type));
        edit.json = csn_str_make(label, (size_t)len);
    }
    csn_cmf_header_edit_write(c, &edit, edit.json.len > 0, w);
}
