/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a tensor by name: an open-addressed table over the list, at most half full. */
#include "format/directory.h"

/* FNV-1a with a final mix; names differ mostly in a digit, and hash64 does not see word order. */
static uint32_t slot_of(csn_str name, uint32_t n_index) {
    uint64_t h = 0xcbf29ce484222325u ^ name.len;
    for (size_t i = 0; i < name.len; i++) {
        h = (h ^ (uint8_t)name.ptr[i]) * 0x100000001b3u;
    }
    h ^= h >> 29;
    h *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & (n_index - 1);
}

caisson_status csn_directory_index(csn_directory *dir, csn_arena *arena, caisson_error *err) {
    uint32_t n_index = 2;
    while (n_index < (uint64_t)dir->n * 2) {
        n_index *= 2;
    }
    uint32_t *index;
    CSN_TRY(CSN_ARENA_NEW(arena, n_index, &index, err));
    for (uint32_t i = 0; i < dir->n; i++) {
        csn_str name = dir->tensors[i].name;
        uint32_t at = slot_of(name, n_index);
        for (; index[at] != 0; at = (at + 1) & (n_index - 1)) {
            if (csn_str_eq(dir->tensors[index[at] - 1].name, name)) {
                return CSN_FAIL(err, CAISSON_E_PARSE, .section = "directory", .tensor = name,
                                .what = "tensor name given twice");
            }
        }
        index[at] = i + 1;
    }
    dir->index = index;
    dir->n_index = n_index;
    return CAISSON_OK;
}

const csn_tensor *csn_directory_find(const csn_directory *dir, csn_str name) {
    if (dir->n_index == 0) {
        return NULL;
    }
    for (uint32_t at = slot_of(name, dir->n_index); dir->index[at] != 0;
         at = (at + 1) & (dir->n_index - 1)) {
        const csn_tensor *t = &dir->tensors[dir->index[at] - 1];
        if (csn_str_eq(t->name, name)) {
            return t;
        }
    }
    return NULL;
}
