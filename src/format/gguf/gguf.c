/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a GGUF model: reads each part's header (its length is not written anywhere, so a window
 * over the start of the file grows until the header parses), then joins the parts' tensor lists.
 * parse.c knows the grammar; this file knows files, parts and the order of checks. */
#include "format/gguf/gguf.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/size.h"
#include "caisson/limits.h"
#include "format/gguf/parse_internal.h"

enum { FIRST_WINDOW_BYTES = 1 << 20 };

/* Parses the header of `file` into *ret, whose strings point into *window. */
static caisson_status read_header(csn_file *file, csn_arena *arena, csn_buf *window,
                                  csn_gguf_head *ret, caisson_error *err) {
    uint64_t size, want = FIRST_WINDOW_BYTES;
    CSN_TRY(csn_file_size(file, &size, err));
    *window = CSN_BUF_INIT(CAISSON_MAX_HEADER_BYTES);
    for (;;) {
        uint64_t n = want < size ? want : size;
        if (n > CAISSON_MAX_HEADER_BYTES) {
            n = CAISSON_MAX_HEADER_BYTES;
        }
        size_t more = (size_t)n - window->len;
        CSN_TRY(csn_buf_reserve(window, more, err));
        CSN_TRY(csn_file_read_at(file, window->len, window->ptr + window->len, more, err));
        window->len = (size_t)n;
        bool is_short = false;
        csn_arena scratch = {0};
        caisson_status status =
            csn_gguf_parse(csn_buf_view(window), size, &scratch, ret, &is_short, err);
        if (status == CAISSON_OK) {
            *arena = scratch;
            return CAISSON_OK;
        }
        csn_arena_done(&scratch);
        if (!is_short || n == size) {
            return status;
        }
        if (n == CAISSON_MAX_HEADER_BYTES) {
            return CSN_FAIL(err, CAISSON_E_LIMIT, .section = "header",
                            .what = "header is longer than the limit",
                            CSN_VALUES(CAISSON_MAX_HEADER_BYTES, size));
        }
        want = n * 4;
    }
}

typedef struct range {
    uint64_t begin, end;
    const csn_tensor *t;
} range;

static int range_cmp(const void *a, const void *b) {
    const range *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Payloads of one file: pairwise disjoint. */
static caisson_status check_disjoint(const csn_tensor *t, uint32_t n, caisson_error *err) {
    range *r;
    CSN_TRY(CSN_NEW(n, &r, err));
    for (uint32_t i = 0; i < n; i++) {
        r[i] = (range){t[i].offset, t[i].offset + t[i].nbytes, &t[i]};
    }
    qsort(r, n, sizeof(*r), range_cmp);
    caisson_status status = CAISSON_OK;
    for (uint32_t i = 1; i < n; i++) {
        if (r[i].begin < r[i - 1].end) {
            status =
                CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "directory", .tensor = r[i].t->name,
                         CSN_AT(r[i].begin), .what = "tensor bytes overlap those of another tensor",
                         CSN_VALUES(r[i - 1].end, r[i].begin));
            break;
        }
    }
    csn_free(r);
    return status;
}

/* Places the tensors of one part: alignment, inside the file. */
static caisson_status place_tensors(const csn_gguf_head *h, csn_file *file, uint32_t i_file,
                                    csn_tensor *out, caisson_error *err) {
    uint64_t size;
    CSN_TRY(csn_file_size(file, &size, err));
    for (uint32_t i = 0; i < h->n_tensors; i++) {
        csn_tensor *t = &out[i];
        *t = h->tensors[i];
        t->i_file = i_file;
        if (t->offset % h->alignment != 0) {
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "directory", .tensor = t->name,
                            .what = "tensor offset is not a multiple of the alignment",
                            CSN_VALUES(h->alignment, t->offset));
        }
        uint64_t begin;
        if (!csn_add(h->data_offset, t->offset, &begin) ||
            !csn_range_fits(begin, t->nbytes, size)) {
            uint64_t need = 0;
            (void)csn_add(t->offset, t->nbytes, &need);
            return CSN_FAIL(err, CAISSON_E_BOUNDS, .section = "directory", .tensor = t->name,
                            .what = "tensor bytes leave the file",
                            CSN_VALUES(size < h->data_offset ? 0 : size - h->data_offset, need));
        }
        t->offset = begin;
    }
    return check_disjoint(out, h->n_tensors, err);
}

/* Path of part `no` (from 0) of `count`, given the path of one part. False if the name has not the
 * form NAME-%05u-of-%05u.gguf with this count. */
static bool part_path(const char *path, uint64_t no, uint64_t count, csn_buf *ret,
                      caisson_error *err) {
    csn_str s = csn_str_from(path);
    static const size_t tail = sizeof("-00001-of-00001.gguf") - 1;
    uint64_t have;
    if (s.len < tail || !csn_str_ends(s, CSN_STR(".gguf")) || s.ptr[s.len - tail] != '-' ||
        memcmp(s.ptr + s.len - 14, "-of-", 4) != 0 ||
        !csn_str_to_u64(csn_str_make(s.ptr + s.len - 10, 5), &have) || have != count) {
        return false;
    }
    ret->len = 0;
    return csn_buf_append(ret, s.ptr, s.len - tail, err) == CAISSON_OK &&
           csn_buf_printf(ret, err, "-%05u-of-%05u.gguf", (unsigned)no + 1, (unsigned)count) ==
               CAISSON_OK;
}

/* Opens and parses part `no` of `count` with n_tensors in all; checks that it belongs to the split.
 */
static caisson_status open_part(csn_fs *fs, const char *path, uint64_t no, uint64_t count,
                                uint64_t n_tensors, csn_gguf *g, csn_gguf_head *head,
                                csn_buf *window, csn_arena *arena, caisson_error *err) {
    csn_file **f = &g->files[no];
    caisson_status status = csn_fs_open(fs, path, CSN_OPEN_READ, f, err);
    if (status == CAISSON_OK) {
        status = read_header(*f, arena, window, head, err);
    }
    const struct {
        csn_str key;
        uint64_t want, got;
    } of_split[] = {{CSN_STR("split.no"), no, head->split_no},
                    {CSN_STR("split.count"), count, head->split_count},
                    {CSN_STR("split.tensors.count"), n_tensors, head->split_tensors}};
    for (size_t i = 0; i < 3 && status == CAISSON_OK; i++) {
        if (of_split[i].got != of_split[i].want) {
            status =
                CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = of_split[i].key,
                         .what = "this file is not the part that its name says",
                         CSN_VALUES(of_split[i].want, of_split[i].got));
        }
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
    }
    return status;
}

/* Copies names (which point into another part's window) into the model's arena and places the
 * part's tensors behind those before it. */
static caisson_status join_part(csn_gguf *g, const csn_gguf_head *head, uint32_t i_file,
                                bool keep_names, uint32_t cap, caisson_error *err) {
    if (head->n_tensors > cap - g->dir.n) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata",
                        .tensor = CSN_STR("split.tensors.count"),
                        .what = "the parts hold more tensors than the split says",
                        CSN_VALUES(cap, (uint64_t)g->dir.n + head->n_tensors));
    }
    csn_tensor *out = g->dir.tensors + g->dir.n;
    CSN_TRY(place_tensors(head, g->files[i_file], i_file, out, err));
    for (uint32_t i = 0; !keep_names && i < head->n_tensors; i++) {
        CSN_TRY(csn_arena_str(&g->arena, out[i].name, &out[i].name, err));
    }
    g->dir.n += head->n_tensors;
    return CAISSON_OK;
}

/* Parts 2.. of a split; part 1 (`first`) is open. */
static caisson_status open_rest(csn_fs *fs, const char *path, csn_gguf *g,
                                const csn_gguf_head *first, caisson_error *err) {
    csn_buf name = CSN_BUF_INIT(1 << 16);
    caisson_status status = CAISSON_OK;
    for (uint64_t no = 1; no < first->split_count && status == CAISSON_OK; no++) {
        csn_gguf_head head;
        csn_buf window = {0};
        csn_arena arena = {0};
        if (!part_path(path, no, first->split_count, &name, err)) {
            status = CSN_FAIL(err, CAISSON_E_PARSE, .file = path,
                              .what = "the name of a split file must end in -00001-of-0000N.gguf");
            break;
        }
        status = open_part(fs, name.ptr, no, first->split_count, first->split_tensors, g, &head,
                           &window, &arena, err);
        if (status == CAISSON_OK) {
            status = join_part(g, &head, (uint32_t)no, false, (uint32_t)first->split_tensors, err);
        }
        if (status != CAISSON_OK) {
            csn_error_file(err, name.ptr);
        }
        csn_arena_done(&arena);
        csn_buf_free(&window);
    }
    csn_buf_free(&name);
    if (status == CAISSON_OK && g->dir.n != first->split_tensors) {
        status = CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata",
                          .tensor = CSN_STR("split.tensors.count"),
                          .what = "the parts hold fewer tensors than the split says",
                          CSN_VALUES(first->split_tensors, g->dir.n));
    }
    return status;
}

/* Opens path; when it is a part other than the first, opens the first instead. */
static caisson_status open_first(csn_fs *fs, const char *path, csn_gguf *g, csn_gguf_head *head,
                                 caisson_error *err) {
    CSN_TRY(CSN_NEW(CSN_GGUF_MAX_FILES, &g->files, err));
    g->n_files = CSN_GGUF_MAX_FILES;
    CSN_TRY(csn_fs_open(fs, path, CSN_OPEN_READ, &g->files[0], err));
    CSN_TRY(read_header(g->files[0], &g->arena, &g->head, head, err));
    if (head->split_count <= 1) {
        return CAISSON_OK;
    }
    if (head->split_count > CSN_GGUF_MAX_FILES || head->split_no >= head->split_count ||
        head->split_tensors > CAISSON_MAX_TENSORS) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata",
                        .tensor = CSN_STR("split.count"),
                        .what = "number of this part or of the parts is out of range",
                        CSN_VALUES(CSN_GGUF_MAX_FILES, head->split_count));
    }
    uint64_t count = head->split_count;
    csn_buf name = CSN_BUF_INIT(1 << 16);
    caisson_status status = CAISSON_OK;
    csn_buf own = CSN_BUF_INIT(1 << 16);
    if (!part_path(path, 0, count, &name, err) ||
        !part_path(path, head->split_no, count, &own, err) || strcmp(own.ptr, path) != 0) {
        status =
            CSN_FAIL(err, CAISSON_E_PARSE, .section = "metadata", .tensor = CSN_STR("split.no"),
                     .what = "the name of a split file must end in -0000I-of-0000N.gguf with "
                             "its own number",
                     CSN_VALUES(head->split_no + 1, count));
    } else if (head->split_no != 0) {
        csn_file_close(g->files[0]);
        g->files[0] = NULL;
        csn_arena_done(&g->arena);
        csn_buf_free(&g->head);
        status = open_part(fs, name.ptr, 0, count, head->split_tensors, g, head, &g->head,
                           &g->arena, err);
    }
    csn_buf_free(&own);
    csn_buf_free(&name);
    return status;
}

static caisson_status open_all(csn_fs *fs, const char *path, csn_gguf *g, caisson_error *err) {
    csn_gguf_head head;
    CSN_TRY(open_first(fs, path, g, &head, err));
    g->version = head.version;
    g->pairs = head.pairs;
    g->n_pairs = head.n_pairs;
    bool is_split = head.split_count > 1;
    uint32_t cap = is_split ? (uint32_t)head.split_tensors : head.n_tensors;
    CSN_TRY(CSN_ARENA_NEW(&g->arena, cap, &g->dir.tensors, err));
    CSN_TRY(join_part(g, &head, 0, true, cap, err));
    if (is_split) {
        CSN_TRY(open_rest(fs, path, g, &head, err));
        g->n_files = (uint32_t)head.split_count;
    } else {
        g->n_files = 1;
    }
    return csn_directory_index(&g->dir, &g->arena, err);
}

caisson_status csn_gguf_open(csn_fs *fs, const char *path, csn_gguf **ret, caisson_error *err) {
    csn_gguf *g;
    CSN_TRY(CSN_NEW(1, &g, err));
    caisson_status status = open_all(fs, path, g, err);
    if (status != CAISSON_OK) {
        csn_error_file(err, path);
        csn_gguf_close(g);
        return status;
    }
    *ret = g;
    return CAISSON_OK;
}

void csn_gguf_close(csn_gguf *g) {
    if (g == NULL) {
        return;
    }
    for (uint32_t i = 0; g->files != NULL && i < g->n_files; i++) {
        csn_file_close(g->files[i]);
    }
    csn_free(g->files);
    csn_buf_free(&g->head);
    csn_arena_done(&g->arena);
    csn_free(g);
}
