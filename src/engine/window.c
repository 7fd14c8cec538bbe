/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/window.h"

#include <string.h>

#include "base/alloc.h"

struct teller {
    const csn_progress *outer;
    const char *stage;
    uint64_t before, n; /* tokens of the text: of finished windows, of all */
};

static bool tell(void *ctx, const char *stage, uint64_t done, uint64_t total) {
    const struct teller *t = ctx;
    (void)stage;
    (void)total;
    uint64_t all = t->before + done < t->n ? t->before + done : t->n;
    return t->outer->fn(t->outer->ctx, t->stage, all, t->n);
}

caisson_status csn_windows_run(const int32_t *ids, uint64_t n, int32_t bos, uint32_t n_ctx,
                               const char *stage, const csn_progress *progress, csn_window_fn fn,
                               void *ctx, caisson_error *err) {
    if (n == 0) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "the text has no tokens", CSN_VALUES(1, 0));
    }
    if (n_ctx < 2) {
        return CSN_FAIL(err, CAISSON_E_ARG, .what = "a window needs at least two tokens",
                        CSN_VALUES(2, n_ctx));
    }
    struct teller t = {progress, stage, 0, n};
    const csn_progress inner = {tell, &t};
    bool is_watched = progress != NULL && progress->fn != NULL;
    uint32_t n_bos = bos >= 0;
    uint32_t step = n_ctx - n_bos;
    int32_t *window;
    CSN_TRY(CSN_NEW(n_ctx, &window, err));
    window[0] = bos;
    caisson_status status = CAISSON_OK;
    while (t.before < n && status == CAISSON_OK) {
        uint32_t k = n - t.before < step ? (uint32_t)(n - t.before) : step;
        memcpy(window + n_bos, ids + t.before, k * sizeof(*window));
        status = fn(ctx, window, k + n_bos, is_watched ? &inner : NULL, err);
        t.before += k;
        if (status == CAISSON_OK) {
            status = csn_progress_tell(progress, stage, t.before, n, err);
        }
    }
    csn_free(window);
    return status;
}
