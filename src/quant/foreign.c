/* SPDX-License-Identifier: Apache-2.0 */
/* dtypes of GGUF and safetensors that we know by name and size only: such a tensor is listed and
 * bounds-checked; converting it is refused by name. */
#include "quant/ggml_block_internal.h"

#define FOREIGN(NAME, GGUF_ID, SAFETENSORS, BLOCK, BYTES)                                          \
    static const csn_ggml_block NAME##_block = {BLOCK, BYTES, NULL};                               \
    static caisson_status NAME##_nbytes(const csn_shape *shape, uint64_t *ret,                     \
                                        caisson_error *err) {                                      \
        return csn_ggml_nbytes(&NAME##_block, shape, ret, err);                                    \
    }                                                                                              \
    const csn_dtype csn_dtype_##NAME = {                                                           \
        .name = #NAME,                                                                             \
        .cmf_id = CSN_NO_ID,                                                                       \
        .gguf_id = (GGUF_ID),                                                                      \
        .warp_fmt = CSN_NO_ID,                                                                     \
        .safetensors = (SAFETENSORS),                                                              \
        .group = 1,                                                                                \
        .is_reserved = true,                                                                       \
        .nbytes = NAME##_nbytes,                                                                   \
    }

FOREIGN(q8_1, 9, NULL, 32, 40);
FOREIGN(q8_k, 15, NULL, 256, 292);
FOREIGN(iq2_xxs, 16, NULL, 256, 66);
FOREIGN(iq2_xs, 17, NULL, 256, 74);
FOREIGN(iq3_xxs, 18, NULL, 256, 98);
FOREIGN(iq1_s, 19, NULL, 256, 50);
FOREIGN(iq3_s, 21, NULL, 256, 110);
FOREIGN(iq2_s, 22, NULL, 256, 82);
FOREIGN(i8, 24, "I8", 1, 1);
FOREIGN(i16, 25, "I16", 1, 2);
FOREIGN(i32, 26, "I32", 1, 4);
FOREIGN(i64, 27, "I64", 1, 8);
FOREIGN(f64, 28, "F64", 1, 8);
FOREIGN(iq1_m, 29, NULL, 256, 56);
FOREIGN(tq1_0, 34, NULL, 256, 54);
FOREIGN(tq2_0, 35, NULL, 256, 66);
FOREIGN(nvfp4, 40, NULL, 64, 36);
FOREIGN(q1_0, 41, NULL, 128, 18);
FOREIGN(bool8, CSN_NO_ID, "BOOL", 1, 1);
FOREIGN(u8_raw, CSN_NO_ID, "U8", 1, 1);
FOREIGN(u16, CSN_NO_ID, "U16", 1, 2);
FOREIGN(u32, CSN_NO_ID, "U32", 1, 4);
FOREIGN(u64, CSN_NO_ID, "U64", 1, 8);
FOREIGN(f8_e8m0, CSN_NO_ID, "F8_E8M0", 1, 1);
