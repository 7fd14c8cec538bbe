/* SPDX-License-Identifier: Apache-2.0 */
/* Time to open a CMF file with many tensors, warm.
 *
 *   build/dev/bench/bench_open [N_TENSORS] [DIR]     20000, /tmp
 *
 * {"n_tensors":20000,"file_bytes":B,"directory_bytes":D,"open_ms":{"median":M,"best":B}} */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "format/cmf/cmf.h"

static const char header[] =
    "{\"format\":\"cmf\",\"version\":2,\"arch\":{\"arch_name\":\"bench\",\"hidden_size\":64,"
    "\"intermediate_size\":64,\"num_layers\":64,\"num_attention_heads\":4,\"num_kv_heads\":4,"
    "\"head_dim\":16,\"vocab_size\":8,\"layer_types\":[\"FullAttention\"],\"rms_norm_eps\":1e-06,"
    "\"max_position_embeddings\":512},\"quant_type\":\"Q8_ROW\"}";

static int fail(const caisson_error *err) {
    char line[1024];
    fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
    return 1;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A file shaped like a mixture of experts: long names, small q4_tiled payloads. */
static caisson_status make_file(const char *path, uint32_t n, caisson_error *err) {
    static const uint8_t payload[18 * 8];
    csn_cmf_plan_tensor *t = calloc(n, sizeof(*t));
    char(*names)[80] = calloc(n, sizeof(*names));
    if (t == NULL || names == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < n; i++) {
        static const char *const roles[] = {"gate", "up", "down"};
        snprintf(names[i], sizeof(names[i]), "model.layers.%u.mlp.experts.%u.%s_proj.weight",
                 i / 384, i / 3 % 128, roles[i % 3]);
        t[i] = (csn_cmf_plan_tensor){.name = csn_str_from(names[i]),
                                     .dtype = csn_dtype_by_name(CSN_STR("q4_tiled")),
                                     .shape = {.n_dims = 2, .dim = {4, 64}}};
    }
    csn_cmf_plan plan = {.tensors = t, .n = n, .head_bytes = sizeof(header)};
    csn_cmf_writer *w = NULL;
    uint32_t n_done;
    caisson_status status = csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, err);
    for (uint32_t i = n_done; i < n && status == CAISSON_OK; i++) {
        status = csn_cmf_writer_tensor(w, payload, sizeof(payload), err);
    }
    if (status == CAISSON_OK) {
        status = csn_cmf_writer_finish(w, csn_str_from(header), CSN_STR(""), err);
    }
    csn_cmf_writer_close(w, true);
    free(t);
    free(names);
    return status;
}

int main(int argc, char **argv) {
    enum { RUNS = 101 };
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20000;
    char path[512];
    double ms[RUNS];
    caisson_error err;
    uint64_t file_bytes = 0;
    uint64_t dir_bytes = 0;
    snprintf(path, sizeof(path), "%s/bench-open-%d.cmf", argc > 2 ? argv[2] : "/tmp",
             (int)getpid());
    if (make_file(path, n, &err) != CAISSON_OK) {
        return fail(&err);
    }
    for (int i = 0; i < RUNS; i++) {
        csn_cmf *c = NULL;
        uint64_t t0 = csn_now_ns();
        if (csn_cmf_open(csn_fs_os(), path, &c, &err) != CAISSON_OK) {
            return fail(&err);
        }
        ms[i] = (double)(csn_now_ns() - t0) / 1e6;
        file_bytes = c->envelope.file_bytes;
        dir_bytes = c->envelope.len[CSN_CMF_DIR];
        csn_cmf_close(c);
    }
    (void)unlink(path);
    qsort(ms, RUNS, sizeof(ms[0]), compare);
    printf("{\"n_tensors\":%u,\"file_bytes\":%llu,\"directory_bytes\":%llu,"
           "\"open_ms\":{\"median\":%.3f,\"best\":%.3f}}\n",
           n, (unsigned long long)file_bytes, (unsigned long long)dir_bytes, ms[RUNS / 2], ms[0]);
    return 0;
}
