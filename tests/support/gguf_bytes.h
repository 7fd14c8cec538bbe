/* SPDX-License-Identifier: Apache-2.0 */
/* Writes GGUF files byte by byte, good and bad ones, for tests. */
#ifndef CSN_TESTS_SUPPORT_GGUF_BYTES_H
#define CSN_TESTS_SUPPORT_GGUF_BYTES_H

#include <stdlib.h>

#include "base/str.h"
#include "format/gguf/gguf.h"

static inline void gb_bytes(csn_buf *b, const void *p, size_t n) {
    caisson_error err;
    if (csn_buf_append(b, p, n, &err) != CAISSON_OK) {
        abort();
    }
}
static inline void gb_int(csn_buf *b, uint64_t v, unsigned n_bytes) {
    for (unsigned i = 0; i < n_bytes; i++) {
        uint8_t c = (uint8_t)(v >> (8 * i));
        gb_bytes(b, &c, 1);
    }
}
static inline void gb_str(csn_buf *b, const char *s) {
    gb_int(b, strlen(s), 8);
    gb_bytes(b, s, strlen(s));
}
static inline void gb_head(csn_buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_pairs) {
    gb_bytes(b, "GGUF", 4);
    gb_int(b, version, 4);
    gb_int(b, n_tensors, 8);
    gb_int(b, n_pairs, 8);
}
static inline void gb_key(csn_buf *b, const char *key, csn_gguf_type type) {
    gb_str(b, key);
    gb_int(b, type, 4);
}
static inline void gb_u32(csn_buf *b, const char *key, uint32_t v) {
    gb_key(b, key, CSN_GGUF_U32);
    gb_int(b, v, 4);
}
static inline void gb_text(csn_buf *b, const char *key, const char *v) {
    gb_key(b, key, CSN_GGUF_STRING);
    gb_str(b, v);
}
static inline void gb_f32(csn_buf *b, const char *key, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    gb_key(b, key, CSN_GGUF_F32);
    gb_int(b, bits, 4);
}
static inline void gb_array(csn_buf *b, const char *key, csn_gguf_type item, uint64_t n) {
    gb_key(b, key, CSN_GGUF_ARRAY);
    gb_int(b, item, 4);
    gb_int(b, n, 8);
}
/* dims as GGUF has them: innermost first; d1 = 0: one dim. */
static inline void gb_tensor(csn_buf *b, const char *name, uint64_t d0, uint64_t d1, uint32_t type,
                             uint64_t offset) {
    gb_str(b, name);
    gb_int(b, d1 == 0 ? 1 : 2, 4);
    gb_int(b, d0, 8);
    if (d1 != 0) {
        gb_int(b, d1, 8);
    }
    gb_int(b, type, 4);
    gb_int(b, offset, 8);
}
static inline void gb_pad(csn_buf *b, size_t align) {
    while (b->len % align != 0) {
        gb_int(b, 0, 1);
    }
}

#endif
