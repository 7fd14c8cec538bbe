/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as header.skills of a skill by itself, laid over its base: what comes out opens, is cut
 * against the base again, and laid over it once more is the same model. The first byte chooses
 * which tensors the skill brings. */
#include "support/cmf_edit.h"
#include "convert/skill_cut.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static const cmf_record base_tensors[] = {
    {.name = "a", .dtype = 2, .n_dims = 1, .dim = {8}, .nbytes = 16},
    {.name = "b", .dtype = 2, .n_dims = 1, .dim = {16}, .off = 64, .nbytes = 32},
    {.name = "c", .dtype = 2, .n_dims = 1, .dim = {4}, .off = 128, .nbytes = 8},
};
static const cmf_record skill_tensors[] = {
    {.name = "b", .dtype = 0, .n_dims = 1, .dim = {16}, .nbytes = 64}, /* other bytes */
    {.name = "d", .dtype = 2, .n_dims = 1, .dim = {8}, .off = 64, .nbytes = 16},
    {.name = "a", .dtype = 0, .n_dims = 1, .dim = {8}, .off = 128, .nbytes = 32},
};

static void put(memory_fs *fs, const char *path, csn_str header, const cmf_record *tensors,
                size_t n) {
    cmf_bytes b = cmf_build(header, tensors, n, 192);
    (void)memory_fs_put(fs, path, b.p, b.len);
    free(b.p);
}

static csn_cmf *open_again(memory_fs *fs, const char *path) {
    csn_cmf *c = NULL;
    caisson_error err;
    require(csn_cmf_open(&fs->base, path, &c, &err) == CAISSON_OK);
    return c;
}

static void require_same(const csn_cmf *a, const csn_cmf *b) {
    require(a->dir.n == b->dir.n);
    for (uint32_t i = 0; i < a->dir.n; i++) {
        const csn_tensor *x = &a->dir.tensors[i], *y = &b->dir.tensors[i];
        require(csn_str_eq(x->name, y->name) && x->hash == y->hash && x->dtype == y->dtype);
    }
    require(a->n_skills == b->n_skills);
    for (uint32_t i = 0; i < a->n_skills; i++) {
        require(csn_str_eq(a->skills[i].id, b->skills[i].id));
    }
}

/* The model "out.cmf" as a skill of the base again. */
static void cut_and_apply(memory_fs *fs, csn_cmf *base) {
    caisson_error err;
    const csn_skill_cut_options cut = {0};
    const csn_skill_apply_options apply = {0};
    csn_cmf *out = open_again(fs, "out.cmf");
    if (csn_skill_cut(&fs->base, out, base, CSN_STR("again"), "again.cmf", &cut, &err) ==
        CAISSON_OK) {
        csn_cmf *again = open_again(fs, "again.cmf");
        require(csn_skill_apply(&fs->base, base, again, "back.cmf", &apply, &err) == CAISSON_OK);
        csn_cmf *back = open_again(fs, "back.cmf");
        require_same(out, back);
        csn_cmf_close(back);
        csn_cmf_close(again);
    }
    csn_cmf_close(out);
}

/* Every tensor of the skill, and of the base no other than its own. */
static void look(memory_fs *fs, const csn_cmf *base, const csn_cmf *skill) {
    csn_cmf *out = open_again(fs, "out.cmf");
    for (uint32_t i = 0; i < skill->dir.n; i++) {
        const csn_tensor *t = csn_directory_find(&out->dir, skill->dir.tensors[i].name);
        require(t != NULL && t->hash == skill->dir.tensors[i].hash);
    }
    for (uint32_t i = 0; i < out->dir.n; i++) {
        csn_str name = out->dir.tensors[i].name;
        const csn_tensor *own = csn_directory_find(&skill->dir, name);
        const csn_tensor *t = own != NULL ? own : csn_directory_find(&base->dir, name);
        require(t != NULL && t->hash == out->dir.tensors[i].hash);
    }
    csn_cmf_close(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    memory_fs fs;
    caisson_error err;
    csn_cmf *base = NULL;
    csn_cmf *skill = NULL;
    csn_buf header = CSN_BUF_INIT(1 << 24);
    csn_skill_apply_options apply = {.force = true};
    if (size == 0) {
        return 0;
    }
    memory_fs_init(&fs);
    put(&fs, "base.cmf", CSN_STR(CMF_EDIT_HEADER), base_tensors, 3);
    require(csn_buf_append(&header, CMF_EDIT_HEADER, sizeof(CMF_EDIT_HEADER) - 2, &err) ==
                CAISSON_OK &&
            csn_buf_str(&header, CSN_STR(",\"skills\":"), &err) == CAISSON_OK &&
            csn_buf_append(&header, data + 1, size - 1, &err) == CAISSON_OK &&
            csn_buf_char(&header, '}', &err) == CAISSON_OK);
    put(&fs, "skill.cmf", csn_buf_view(&header), skill_tensors, data[0] % 4);
    base = open_again(&fs, "base.cmf");
    if (csn_cmf_open(&fs.base, "skill.cmf", &skill, &err) == CAISSON_OK &&
        csn_skill_apply(&fs.base, base, skill, "out.cmf", &apply, &err) == CAISSON_OK) {
        look(&fs, base, skill);
        cut_and_apply(&fs, base);
    }
    csn_cmf_close(skill);
    csn_cmf_close(base);
    require(fs.n_open == 0);
    csn_buf_free(&header);
    memory_fs_done(&fs);
    return 0;
}
