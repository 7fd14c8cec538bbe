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

static void note_bit(const struct teller *t, uint32_t bit, const char *what) {
    bool want = (csn_cmf_features(t->c) & bit) != 0;
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
    if (e->flags != 0) {
        tell(&t, &(csn_fail_args){.section = "envelope",
                                  CSN_AT(8),
                                  .what = "reserved flags are not 0",
                                  CSN_VALUES(0, e->flags)});
    }
    note_bit(&t, CSN_CMF_TENSOR_DIR, "feature bit 0 (tensor directory)");
    note_bit(&t, CSN_CMF_BINARY_MASKS, "feature bit 1 (masks)");
    if (c->dir.buckets != NULL) {
        note_bit(&t, CSN_CMF_QUANT_2F, "feature bit 2 (q8_2f or vbit)");
    }
    if (c->header != NULL) {
        note_bit(&t, CSN_CMF_LOOP_MASKS, "feature bit 5 (masks of a looped model)");
        note_bit(&t, CSN_CMF_SKILL_FILE, "feature bit 6 (skill file)");
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
