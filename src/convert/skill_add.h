/* SPDX-License-Identifier: Apache-2.0 */
/* A skill from a fine-tuned copy of the base (CMF 9, facts 10.6): the donor's tensors that differ
 * from the base's are appended as "skill.ID.NAME". The file's earlier bytes never change. */
#ifndef CSN_CONVERT_SKILL_ADD_H
#define CSN_CONVERT_SKILL_ADD_H

#include "convert/convert.h"
#include "format/cmf/cmf.h"

typedef enum csn_skill_family {
    CSN_SKILL_ALL,
    CSN_SKILL_FFN,
    CSN_SKILL_ATTENTION
} csn_skill_family;

typedef struct csn_skill_report { /* one tensor of the base that was compared */
    csn_str name;
    double delta;          /* ||donor - base|| / ||base|| */
    const csn_dtype *to;   /* NULL: not stored */
    uint64_t nbytes;       /* of the stored payload */
    double relative_error; /* ||stored - donor|| / ||donor|| */
} csn_skill_report;

typedef struct csn_skill_add_options {
    csn_str name, description, input_mask_task; /* empty = none */
    csn_str selection;                          /* JSON of the record's selection; empty = none */
    csn_skill_family family;
    csn_str layers;               /* "all" or "0,4-7"; empty = all */
    const csn_dtype *quant;       /* of matrices; NULL = each in the base's dtype */
    csn_encode_options encode;    /* bits_bias 0, col_rms NULL */
    double min_delta;             /* tensors with a smaller delta are left out */
    unsigned n_threads;           /* 0 = all */
    const csn_progress *progress; /* bytes of the base compared */
    const csn_log *log;
    void (*on_tensor)(void *ctx, const csn_skill_report *report); /* or NULL */
    void *ctx;
} csn_skill_add_options;

/* [A-Za-z0-9_-], 1 to 64 of them: CAISSON_E_ARG otherwise. */
caisson_status csn_skill_check_id(csn_str id, caisson_error *err);

/* donor: a .cmf, or what csn_source_open takes. A tensor whose payload would be the base's own
 * bytes is left out as well. CAISSON_E_EXISTS: the file has a skill of this id; _MISSING, _PARSE:
 * the donor lacks a tensor of the base or has it in another shape; _ARG: nothing differs, a bad id;
 * _UNSUPPORTED: a dtype of the base that nobody writes (quant helps); _BUSY. */
caisson_status csn_skill_add(csn_fs *fs, const char *path, csn_str id, const char *donor,
                             const csn_skill_add_options *options, caisson_error *err);

/* Drops its record and the records of its tensors; the bytes stay, dead. CAISSON_E_MISSING. */
caisson_status csn_skill_remove(csn_fs *fs, const char *path, csn_str id, caisson_error *err);
/* Replaces the record's `quality` by this JSON. CAISSON_E_MISSING: no skill, or one without record.
 */
caisson_status csn_skill_set_quality(csn_fs *fs, const char *path, csn_str id, csn_str json,
                                     caisson_error *err);

#endif
