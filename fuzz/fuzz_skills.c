/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as header.skills of a file with a tensor of skill "a": open, and look at what is there.
 */
#include "support/cmf_edit.h"
#include "engine/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const csn_cmf *c) {
    float phi[8] = {1, -2, 3, -4, 5, -6, 7, -8};
    for (uint32_t i = 0; i < c->n_skills; i++) {
        const csn_cmf_selection *s = c->skills[i].selection;
        double raw;
        if (s != NULL && !(csn_selection_error(s, phi, c->arch.hidden_size, &raw) >= 0)) {
            __builtin_trap();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const cmf_record tensor = {
        .name = "skill.a.model.norm.weight", .dtype = 2, .n_dims = 1, .dim = {8}, .nbytes = 16};
    memory_fs fs;
    caisson_error err;
    csn_cmf *c = NULL;
    csn_buf header = CSN_BUF_INIT(1 << 24);
    memory_fs_init(&fs);
    if (csn_buf_append(&header, CMF_EDIT_HEADER, sizeof(CMF_EDIT_HEADER) - 2, &err) != CAISSON_OK ||
        csn_buf_str(&header, CSN_STR(",\"skills\":"), &err) != CAISSON_OK ||
        csn_buf_append(&header, data, size, &err) != CAISSON_OK ||
        csn_buf_char(&header, '}', &err) != CAISSON_OK) {
        abort();
    }
    cmf_bytes b = cmf_build(csn_buf_view(&header), &tensor, 1, 64);
    if (cmf_open_bytes(&fs, b, &c, &err) == CAISSON_OK) {
        if (c->arch.hidden_size <= 8) {
            look(c);
        }
        csn_cmf_close(c);
    }
    free(b.p);
    csn_buf_free(&header);
    memory_fs_done(&fs);
    return 0;
}
