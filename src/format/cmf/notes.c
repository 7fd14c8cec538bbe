/* SPDX-License-Identifier: Apache-2.0 */
/* What verify remarks on without calling it a fault: the format gives these no rule. */
#include "format/cmf/cmf_internal.h"

struct teller {
    const csn_cmf *c;
    csn_cmf_fault_fn fn;
    void *ctx;
};

static void tell(const struct teller *t, const csn_fail_args *args) {
    caisson_error note;
    csn_fail_args a = *args;
    a.file = t->c->file->path;
    (void)csn_fail(&note, CAISSON_OK, &a);
    t->fn(t->ctx, &note);
}

static bool has_q8_2f_or_vbit(const csn_cmf *c) { /* facts 1.3: vbit_ro does not count */
    for (uint32_t i = 0; i < c->dir.n; i++) {
        int id = c->dir.tensors[i].dtype->cmf_id;
        if (id == 8 || id == 9) {
            return true;
        }
    }
    return false;
}

static bool has_skill_of_a_base(const csn_cmf *c) {
    for (uint32_t i = 0; i < c->n_skills; i++) {
        if (csn_jval_get(c->skills[i].record, "base_dir_hash") != NULL) {
            return true;
        }
    }
    return false;
}

static void note_bit(const struct teller *t, uint32_t bit, bool want, const char *what) {
    bool got = (t->c->envelope.required_features & bit) != 0;
    if (want != got) {
        tell(t, &(csn_fail_args){.section = "envelope",
                                 CSN_AT(0x0C),
                                 .what = what,
                                 CSN_TEXTS(want ? CSN_STR("set") : CSN_STR("clear"),
                                           got ? CSN_STR("set") : CSN_STR("clear"))});
    }
}

caisson_status csn_cmf_note(const csn_cmf *c, csn_cmf_fault_fn fn, void *ctx, caisson_error *err) {
    const struct teller t = {c, fn, ctx};
    const csn_cmf_envelope *e = &c->envelope;
    bool has_masks = e->len[CSN_CMF_MASKS] > 0;
    if (e->flags != 0) {
        tell(&t, &(csn_fail_args){.section = "envelope",
                                  CSN_AT(8),
                                  .what = "reserved flags are not 0",
                                  CSN_VALUES(0, e->flags)});
    }
    note_bit(&t, CSN_CMF_TENSOR_DIR, true, "feature bit 0 (tensor directory)");
    note_bit(&t, CSN_CMF_BINARY_MASKS, has_masks, "feature bit 1 (masks)");
    if (c->dir.buckets != NULL) {
        note_bit(&t, CSN_CMF_QUANT_2F, has_q8_2f_or_vbit(c), "feature bit 2 (q8_2f or vbit)");
    }
    if (c->header != NULL) {
        note_bit(&t, CSN_CMF_LOOP_MASKS, has_masks && c->arch.num_loops > 1,
                 "feature bit 5 (masks of a looped model)");
        note_bit(&t, CSN_CMF_SKILL_FILE, has_skill_of_a_base(c), "feature bit 6 (skill file)");
    }
    if (c->dir.buckets == NULL) {
        return CAISSON_OK;
    }
    csn_cmf_stray stray;
    CSN_TRY(csn_cmf_find_stray(c, &stray, err));
    if (stray.nbytes > 0) {
        tell(&t, &(csn_fail_args){
                     .section = "file",
                     CSN_RANGE(stray.first, stray.nbytes),
                     .what = stray.n_places > 1
                                 ? "bytes in several places belong to nothing (caisson "
                                   "compact drops them); the first is at the offset"
                                 : "bytes belong to nothing (caisson compact drops them)"});
    }
    return CAISSON_OK;
}
