/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer's files: a list of ranks, and special tokens (warp facts 7). */
#include "format/warp/warp_internal.h"

static const char *const rank_files[] = {"tokenizer.model", "tiktoken.model"};

caisson_status csn_warp_read_tokenizer(csn_warp *w, csn_buf *ret, caisson_error *err) {
    *ret = (csn_buf){0};
    for (size_t i = 0; i < sizeof(rank_files) / sizeof(rank_files[0]); i++) {
        const char *path;
        CSN_TRY(csn_warp_path(w, csn_str_from(rank_files[i]), &path, err));
        if (w->fs->ops->exists(w->fs, path)) {
            return CSN_FAIL(err, CAISSON_E_UNSUPPORTED, .file = path, .section = "vocab",
                            .what = "tokenizers of ranks are not read by this build");
        }
    }
    return CAISSON_OK;
}
