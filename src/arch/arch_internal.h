/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that reading and writing an `arch` object share. */
#ifndef CSN_ARCH_INTERNAL_H
#define CSN_ARCH_INTERNAL_H

#include "arch/arch.h"
#include "base/json_fields.h"

enum {
    CSN_ARCH_N_FIELDS = 52,
    CSN_YARN_N_FIELDS = 7,
    CSN_MLA_N_FIELDS = 8,
    CSN_MTP_N_FIELDS = 3,
    CSN_MOE_N_FIELDS = 13,
    CSN_LINEAR_CORE_N_FIELDS = 4,
    CSN_LONGROPE_N_FIELDS = 4,
    CSN_N_LAYER_TYPES = CSN_LAYER_KDA + 1,
    CSN_N_NORM_STYLES = CSN_NORM_GEMMA + 1,
    CSN_N_ACTS = CSN_ACT_SITU + 1,
    CSN_ARCH_MAX_MLA_DIM = 1 << 20,
    CSN_ARCH_MAX_LAYERS = 1 << 20 /* layers times loops: as many as a model may have tensors */
};

extern const csn_jfield csn_arch_fields[CSN_ARCH_N_FIELDS];
extern const csn_jfield csn_yarn_fields[CSN_YARN_N_FIELDS];
extern const csn_jfield csn_mla_fields[CSN_MLA_N_FIELDS];
extern const csn_jfield csn_mtp_fields[CSN_MTP_N_FIELDS];
extern const csn_jfield csn_moe_fields[CSN_MOE_N_FIELDS];
extern const csn_jfield csn_linear_core_fields[CSN_LINEAR_CORE_N_FIELDS];
extern const csn_jfield csn_longrope_fields[CSN_LONGROPE_N_FIELDS];

extern const char *const csn_layer_type_names[CSN_N_LAYER_TYPES];
extern const char *const csn_norm_style_names[CSN_N_NORM_STYLES];
extern const char *const csn_act_names[CSN_N_ACTS];

#endif
