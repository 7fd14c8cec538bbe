/* SPDX-License-Identifier: Apache-2.0 */
/* The containers of tests/golden/warp in a memory_fs, as the directory "m.waste", so that a test
 * may damage them. */
#ifndef TESTS_SUPPORT_WARP_GOLDEN_H
#define TESTS_SUPPORT_WARP_GOLDEN_H

#include "base/le.h"
#include "format/warp/warp.h"
#include "support/memory_fs.h"

#define WARP_GOLDEN CSN_SOURCE_DIR "/tests/golden/warp/"

static inline memory_fs_node *warp_node(memory_fs *fs, const char *name) {
    char path[128];
    (void)snprintf(path, sizeof(path), "m.waste/%s", name);
    return memory_fs_find(fs, path);
}

static inline memory_fs_node *warp_put(memory_fs *fs, const char *name, const void *bytes,
                                       size_t n) {
    char path[128];
    (void)snprintf(path, sizeof(path), "m.waste/%s", name);
    return memory_fs_put(fs, path, bytes, n);
}

static inline void warp_put_zeros(memory_fs *fs, const char *name, size_t n) {
    uint8_t *zeros = calloc(1, n + 1);
    warp_put(fs, name, zeros, n);
    free(zeros);
}

/* Books of zeros, with headers. */
static inline void warp_put_books(memory_fs *fs, uint32_t n, uint32_t entries) {
    size_t each = 16 + (size_t)entries * 16;
    warp_put_zeros(fs, "codebooks.bin", n * each);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *book = warp_node(fs, "codebooks.bin")->bytes + i * each;
        memcpy(book, "WCBK", 4);
        csn_put16(book + 4, (uint16_t)i);
        book[6] = 4;
        book[7] = 8;
        csn_put32(book + 8, entries);
    }
}

static inline void warp_load(memory_fs *fs, const char *container) {
    static const char *const names[] = {"manifest.json",   "trunk.bin",      "codebooks.bin",
                                        "experts-L1.bin",  "experts-L2.bin", "experts-L3.bin",
                                        "tokenizer.model", "specials.json"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        csn_buf b = {0};
        caisson_error err;
        (void)snprintf(path, sizeof(path), WARP_GOLDEN "%s/%s", container, names[i]);
        if (csn_fs_read_all(csn_fs_os(), path, 1 << 24, &b, &err) == CAISSON_OK) {
            warp_put(fs, names[i], b.ptr, b.len);
        }
        csn_buf_free(&b);
    }
}

/* The first `from` of the manifest becomes `to`. */
static inline void warp_edit(memory_fs *fs, const char *from, const char *to) {
    memory_fs_node *node = warp_node(fs, "manifest.json");
    csn_str text = csn_str_make((char *)node->bytes, node->len);
    size_t at = csn_str_find(text, csn_str_from(from), 0);
    if (at == SIZE_MAX) {
        (void)fprintf(stderr, "the manifest has no %s\n", from);
        abort();
    }
    size_t n = node->len - strlen(from) + strlen(to);
    char *bytes = malloc(n + 1);
    memcpy(bytes, text.ptr, at);
    memcpy(bytes + at, to, strlen(to));
    memcpy(bytes + at + strlen(to), text.ptr + at + strlen(from), text.len - at - strlen(from));
    warp_put(fs, "manifest.json", bytes, n);
    free(bytes);
}

#endif
