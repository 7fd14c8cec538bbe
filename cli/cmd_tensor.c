/* SPDX-License-Identifier: Apache-2.0 */
/* tensor: the list of a file's tensors, or one of them decoded. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "npy.h"
#include "open.h"
#include "term.h"

enum { MAX_JSON = 1 << 30, CHUNK = 1 << 18 /* values decoded at once */ };

static void put_json(csn_jw *w, const caisson_tensor_info *t) {
    char hash[17];
    snprintf(hash, sizeof(hash), "%016" PRIx64, t->hash);
    csn_jw_object(w);
    csn_jw_put_str(w, "name", csn_str_make(t->name, t->name_n));
    csn_jw_put_str(w, "dtype", csn_str_from(t->dtype));
    csn_jw_key(w, CSN_STR("shape"));
    csn_jw_array(w);
    for (uint32_t i = 0; i < t->n_dims; i++) {
        csn_jw_u64(w, t->shape[i]);
    }
    csn_jw_array_end(w);
    csn_jw_put_u64(w, "shard", (uint64_t)t->i_shard + 1);
    csn_jw_put_u64(w, "offset", t->offset);
    csn_jw_put_u64(w, "bytes", t->n_bytes);
    csn_jw_put_str(w, "hash", csn_str_from(hash));
    csn_jw_object_end(w);
}

static void print_line(const caisson_tensor_info *t) {
    char shape[128] = "scalar";
    size_t k = 0;
    for (uint32_t i = 0; i < t->n_dims && k < sizeof(shape); i++) {
        k += (size_t)snprintf(shape + k, sizeof(shape) - k, "%s%" PRIu64, i > 0 ? "x" : "",
                              t->shape[i]);
    }
    printf("%-9s %-16s %12" PRIu64 " B  at %-12" PRIu64 " %016" PRIx64 "  ", t->dtype, shape,
           t->n_bytes, t->offset, t->hash);
    cli_put_printable(stdout, t->name, t->name_n);
    fputc('\n', stdout);
}

/* Tensor i alone (only >= 0), or all. */
static int list(const cli_args *args, caisson_file *file, int64_t only) {
    caisson_error err;
    csn_buf out = CSN_BUF_INIT(MAX_JSON);
    csn_jw w = csn_jw_begin(&out, &err);
    bool json = cli_has(args, "json");
    csn_jw_array(&w);
    caisson_tensor_info t;
    for (uint32_t i = only >= 0 ? (uint32_t)only : 0; caisson_file_tensor(file, i, &t); i++) {
        if (json) {
            put_json(&w, &t);
        } else {
            print_line(&t);
        }
        if (only >= 0) {
            break;
        }
    }
    csn_jw_array_end(&w);
    int rc = CLI_OK;
    if (csn_jw_end(&w) != CAISSON_OK) {
        rc = cli_fail(args, &err);
    } else if (json) {
        printf("%s\n", out.ptr);
    }
    csn_buf_free(&out);
    return rc;
}

typedef struct stats {
    double sum, sum_squares;
    float min, max;
    uint64_t n_not_finite;
} stats;

static void count(stats *s, const float *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            s->n_not_finite++;
            continue;
        }
        s->sum += (double)x[i];
        s->sum_squares += (double)x[i] * (double)x[i];
        s->min = x[i] < s->min ? x[i] : s->min;
        s->max = x[i] > s->max ? x[i] : s->max;
    }
}

/* Decodes tensor i piece by piece into the file, if any, and counts. */
static int decode(const cli_args *args, caisson_file *file, uint32_t i,
                  const caisson_tensor_info *t, cli_out *npy, stats *s) {
    float *buf = malloc(CHUNK * sizeof(*buf));
    if (buf == NULL) {
        return cli_fail_text(args, "out of memory");
    }
    caisson_error err;
    int rc = CLI_OK;
    for (uint64_t first = 0; first < t->n_values && rc == CLI_OK; first += CHUNK) {
        uint64_t n = t->n_values - first < CHUNK ? t->n_values - first : CHUNK;
        if (caisson_file_decode(file, i, first, n, buf, &err) != CAISSON_OK) {
            rc = cli_fail(args, &err);
        } else {
            count(s, buf, n);
            if (npy != NULL) {
                cli_npy_write(npy, buf, n);
            }
        }
        if (cli_interrupted()) {
            rc = CLI_INTERRUPTED;
        }
    }
    free(buf);
    return rc;
}

static int show_values(const cli_args *args, caisson_file *file, uint32_t i) {
    caisson_tensor_info t;
    (void)caisson_file_tensor(file, i, &t);
    const char *path = cli_text(args, "npy", NULL);
    cli_out npy = {0};
    int rc = CLI_OK;
    if (path != NULL) {
        rc = cli_npy_open(args, path, t.n_dims, t.shape, &npy);
        if (rc != CLI_OK) {
            return rc;
        }
    }
    stats s = {.min = INFINITY, .max = -INFINITY};
    rc = decode(args, file, i, &t, path != NULL ? &npy : NULL, &s);
    if (path != NULL) {
        rc = cli_out_close(args, &npy, rc);
    }
    if (rc == CLI_OK && !cli_has(args, "json") && t.n_values > s.n_not_finite) {
        double n = (double)(t.n_values - s.n_not_finite);
        printf("values %" PRIu64 ", min %g, max %g, mean %g, rms %g, not finite %" PRIu64 "\n",
               t.n_values, (double)s.min, (double)s.max, s.sum / n, sqrt(s.sum_squares / n),
               s.n_not_finite);
    }
    return rc;
}

static int run(const cli_args *args) {
    const char *name = args->n_positional > 1 ? args->positional[1] : NULL;
    if (name == NULL && cli_has(args, "npy")) {
        return cli_usage_error(args->command, "--npy needs the NAME of a tensor");
    }
    caisson_file *file;
    int rc = cli_open_file(args, args->positional[0], &file);
    if (rc != CLI_OK) {
        return rc;
    }
    if (name == NULL) {
        rc = list(args, file, -1);
    } else {
        int64_t i = caisson_file_find(file, name, strlen(name));
        if (i < 0) {
            rc = cli_fail_text(args, "%s: no tensor \"%s\"; caisson tensor FILE lists them",
                               args->positional[0], name);
        } else {
            rc = list(args, file, i);
            if (rc == CLI_OK) {
                rc = show_values(args, file, (uint32_t)i);
            }
        }
    }
    caisson_file_close(file);
    return rc;
}

static const cli_option options[] = {
    {.name = "npy",
     .kind = CLI_PATH,
     .value = "OUT.npy",
     .help = "Write the tensor NAME, decoded to float32, as a numpy array"},
    {0},
};

const cli_command cli_cmd_tensor = {
    .name = "tensor",
    .summary = "List the tensors of a model, or decode one",
    .positionals = "FILE [NAME]",
    .min_args = 1,
    .max_args = 2,
    .groups = {options, cli_file_options, cli_json_options, cli_common_options},
    .details =
        "Columns: type, shape, bytes, offset in the file, stored hash, name.\nJSON: "
        "[{\"name\":N, \"dtype\":D, \"shape\":[...], \"shard\":1, \"offset\":O, \"bytes\":B, "
        "\"hash\":\"16 hex\"}]",
    .examples = "caisson tensor model.cmf\n"
                "caisson tensor model.cmf model.norm.weight --npy norm.npy",
    .run = run,
};
