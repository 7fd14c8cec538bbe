/* SPDX-License-Identifier: Apache-2.0 */
/* A family are the tensors whose names are equal but for the number of the expert, or of layer and
 * expert. Sorted by name they lie side by side; one family after the other is read, and leaves
 * nothing behind but a number a tensor. */
#include "convert/bits_over.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "convert/tensor.h"
#include "quant/vbit.h"

typedef struct member {
    csn_str family; /* the name without those numbers */
    csn_convert_item *item;
} member;

typedef struct pass {
    const csn_source *s;
    const csn_convert_options *o;
    csn_pool *pool;
    csn_buf *piece;
    uint64_t n_done, n_total; /* bytes of source */
    caisson_error *err;
} pass;

static caisson_status tell(void *ctx, uint64_t n_bytes, caisson_error *err) {
    pass *p = ctx;
    p->n_done += n_bytes;
    uint64_t done = p->n_done < p->n_total ? p->n_done : p->n_total;
    return csn_progress_tell(p->o->progress, "measure", done, p->n_total, err);
}

static bool ends_with_part(csn_str text, const char *part) {
    csn_str end = csn_str_from(part);
    return csn_str_ends(text, end) &&
           (text.len == end.len || text.ptr[text.len - end.len - 1] == '.');
}

/* `name` without the numbers behind "experts.", and behind "layers." where those are one family. */
static caisson_status family_name(csn_str name, csn_bits_over over, csn_arena *arena, csn_str *ret,
                                  caisson_error *err) {
    char *text;
    size_t n = 0;
    CSN_TRY(CSN_ARENA_NEW(arena, name.len + 1, &text, err));
    for (size_t i = 0; i < name.len; i++) {
        csn_str before = csn_str_make(name.ptr, i);
        bool is_number = ends_with_part(before, "experts.") ||
                         (over == CSN_BITS_OVER_LAYERS && ends_with_part(before, "layers."));
        while (is_number && i < name.len && name.ptr[i] >= '0' && name.ptr[i] <= '9') {
            i++;
        }
        if (i < name.len) {
            text[n++] = name.ptr[i];
        }
    }
    *ret = csn_str_make(text, n);
    return CAISSON_OK;
}

/* Families together, in the order of the file within each. */
static int by_family(const void *a, const void *b) {
    const member *x = a;
    const member *y = b;
    int order = csn_str_cmp(x->family, y->family);
    return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

static bool has_widths(const csn_dtype *d) {
    return d == csn_dtype_by_name(CSN_STR("vbit")) || d == csn_dtype_by_name(CSN_STR("vbit_ro"));
}

/* *ret: in the arena. */
static caisson_status find_members(const csn_convert_plan *plan, csn_bits_over over,
                                   csn_arena *arena, member **ret, uint32_t *ret_n,
                                   caisson_error *err) {
    uint32_t n = 0;
    CSN_TRY(CSN_ARENA_NEW(arena, (size_t)plan->n + 1, ret, err));
    for (uint32_t i = 0; i < plan->n; i++) {
        csn_convert_item *item = &plan->items[i];
        if (has_widths(item->to) && !item->is_copied && item->shape.dim[0] > 0) {
            member *m = &(*ret)[n++];
            m->item = item;
            CSN_TRY(family_name(item->name, over, arena, &m->family, err));
        }
    }
    qsort(*ret, n, sizeof(**ret), by_family);
    *ret_n = n;
    return CAISSON_OK;
}

static caisson_status measure(pass *p, const csn_convert_item *item, float *level) {
    const csn_tensor_watch watch = {tell, p};
    float *x;
    uint64_t n;
    CSN_TRY(csn_tensor_alloc_f32(item, &x, &n, p->err));
    caisson_status status = csn_tensor_read_f32(p->s, item, p->pool, p->piece, &watch, x, p->err);
    if (status == CAISSON_OK) {
        csn_vbit_levels(x, &item->shape, p->pool, level);
    }
    csn_free_aligned(x);
    return status;
}

/* n > 1 tensors of one family. */
static caisson_status share(pass *p, const member *m, uint32_t n) {
    csn_arena arena = {0};
    uint64_t *first;
    float *level = NULL, *bias = NULL;
    caisson_status status = CSN_ARENA_NEW(&arena, (size_t)n + 1, &first, p->err);
    if (status == CAISSON_OK) {
        for (uint32_t i = 0; i < n; i++) {
            first[i + 1] = first[i] + m[i].item->shape.dim[0];
        }
        status = CSN_ARENA_NEW(&arena, (size_t)first[n], &level, p->err);
    }
    if (status == CAISSON_OK) {
        status = CSN_ARENA_NEW(&arena, n, &bias, p->err);
    }
    for (uint32_t i = 0; i < n && status == CAISSON_OK; i++) {
        status = measure(p, m[i].item, level + first[i]);
    }
    if (status == CAISSON_OK) {
        csn_vbit_biases(level, first, n, csn_vbit_mean_bits(&p->o->encode), bias);
        for (uint32_t i = 0; i < n; i++) {
            m[i].item->bits_bias = bias[i];
        }
    }
    csn_arena_done(&arena);
    return status;
}

static uint32_t n_of_family(const member *m, uint32_t n) {
    uint32_t k = 1;
    while (k < n && csn_str_eq(m[k].family, m[0].family)) {
        k++;
    }
    return k;
}

caisson_status csn_convert_share_bits(const csn_source *s, csn_convert_plan *plan,
                                      const csn_convert_options *o, csn_pool *pool, csn_buf *piece,
                                      caisson_error *err) {
    pass p = {.s = s, .o = o, .pool = pool, .piece = piece, .err = err};
    csn_arena arena = {0};
    member *m;
    uint32_t n = 0, k;
    if (o->bits_over == CSN_BITS_OVER_TENSOR) {
        return CAISSON_OK;
    }
    caisson_status status = find_members(plan, o->bits_over, &arena, &m, &n, err);
    for (uint32_t i = 0; i < n && status == CAISSON_OK; i++) {
        p.n_total += csn_convert_item_bytes(s, m[i].item);
    }
    for (uint32_t i = 0; i < n && status == CAISSON_OK; i += k) {
        k = n_of_family(m + i, n - i);
        status = k > 1 ? share(&p, m + i, k) : tell(&p, csn_convert_item_bytes(s, m[i].item), err);
    }
    csn_arena_done(&arena);
    return status;
}
