/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a .waste directory: manifest, then trunk, then codebooks and banks. */
#include "format/warp/digests.h"

#include "base/alloc.h"
#include "caisson/limits.h"

enum { MAX_PATH = 1 << 16 };

static const char manifest_name[] = "manifest.json";

static caisson_status join(const char *dir, csn_str name, csn_buf *ret, caisson_error *err) {
    *ret = CSN_BUF_INIT(MAX_PATH);
    const char *slash = csn_str_ends(csn_str_from(dir), CSN_STR("/")) ? "" : "/";
    return csn_buf_printf(ret, err, "%s%s%.*s", dir, slash, CSN_STR_ARGS(name));
}

caisson_status csn_warp_path(csn_warp *w, csn_str name, const char **ret, caisson_error *err) {
    csn_buf path;
    csn_str kept;
    caisson_status status = join(w->path, name, &path, err);
    if (status == CAISSON_OK) {
        status = csn_arena_str(&w->arena, csn_buf_view(&path), &kept, err);
    }
    csn_buf_free(&path);
    if (status == CAISSON_OK) {
        *ret = kept.ptr;
    }
    return status;
}

bool csn_warp_is(csn_fs *fs, const char *path) {
    csn_buf manifest;
    caisson_error ignored;
    bool is = fs->ops->is_dir(fs, path) &&
              join(path, csn_str_from(manifest_name), &manifest, &ignored) == CAISSON_OK;
    if (is) {
        is = fs->ops->exists(fs, manifest.ptr);
        csn_buf_free(&manifest);
    }
    return is;
}

static caisson_status check_version(const csn_jval *root, caisson_error *err) {
    const csn_jval *v = csn_jval_get(root, "format_version");
    uint64_t version;
    if (csn_jval_kind(root) != CSN_JSON_OBJECT) {
        return CSN_FAIL(err, CAISSON_E_PARSE, .what = "not a JSON object");
    }
    if (v == NULL) {
        return CSN_FAIL(err, CAISSON_E_VERSION, .tensor = CSN_STR("format_version"),
                        .what = "the key is missing", .want = CSN_STR("0"));
    }
    if (!csn_jval_u64(v, &version)) {
        return CSN_FAIL(err, CAISSON_E_VERSION, .tensor = CSN_STR("format_version"),
                        .what = "not an integer from 0 on", .want = CSN_STR("0"));
    }
    return version == 0 ? CAISSON_OK
                        : CSN_FAIL(err, CAISSON_E_VERSION, .tensor = CSN_STR("format_version"),
                                   .what = "a version of the format that is not read",
                                   CSN_VALUES(0, version));
}

/* Keys given twice are refused: readers differ in which one they take. */
static caisson_status read_manifest(csn_warp *w, const char *path, caisson_error *err) {
    csn_buf text;
    CSN_TRY(csn_fs_read_all(w->fs, path, CAISSON_MAX_HEADER_BYTES, &text, err));
    caisson_status status = csn_json_parse(csn_buf_view(&text), CSN_JSON_UNIQUE, &w->manifest, err);
    csn_buf_free(&text);
    if (status == CAISSON_OK) {
        status = check_version(csn_json_root(w->manifest), err);
    }
    return status;
}

static caisson_status open_all(csn_warp *w, const csn_log *log, caisson_error *err) {
    const char *path;
    csn_warp_config config;
    CSN_TRY(csn_warp_path(w, csn_str_from(manifest_name), &path, err));
    caisson_status status = read_manifest(w, path, err);
    if (status == CAISSON_OK) {
        status = csn_warp_read_config(w, log, &config, err);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_read_expert_quant(w, err);
    }
    if (status == CAISSON_OK) {
        const char *trunk;
        status = csn_warp_path(w, CSN_STR("trunk.bin"), &trunk, err);
        if (status == CAISSON_OK) {
            status = csn_fs_open(w->fs, trunk, CSN_OPEN_READ, &w->trunk, err);
        }
    }
    if (status == CAISSON_OK) {
        status = csn_warp_read_trunk(w, &config, err);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_read_banks(w, &config, err);
    }
    if (status == CAISSON_OK) {
        status = csn_warp_read_chat(w, err);
    }
    if (status != CAISSON_OK) {
        csn_error_file(err, path); /* where nobody named another file, the manifest is at fault */
    }
    return status;
}

caisson_status csn_warp_open(csn_fs *fs, const char *path, const csn_log *log, csn_warp **ret,
                             caisson_error *err) {
    csn_warp *w;
    csn_str copy;
    CSN_TRY(CSN_NEW(1, &w, err));
    caisson_status status = csn_arena_str(&w->arena, csn_str_from(path), &copy, err);
    if (status == CAISSON_OK) {
        w->fs = fs;
        w->path = copy.ptr;
        status = open_all(w, log, err);
    }
    if (status != CAISSON_OK) {
        csn_warp_close(w);
        return status;
    }
    *ret = w;
    return CAISSON_OK;
}

void csn_warp_close(csn_warp *w) {
    if (w == NULL) {
        return;
    }
    for (uint32_t i = 0; i < w->n_banks; i++) {
        csn_file_close(w->banks[i].file);
    }
    csn_file_close(w->trunk);
    if (w->digests != NULL) {
        csn_warp_digests_free(w->digests);
        csn_free(w->digests);
    }
    csn_json_free(w->manifest);
    csn_arena_done(&w->arena);
    csn_free(w);
}
