/* SPDX-License-Identifier: Apache-2.0 */
/* What skills cost: memory of many in one file with one active, and the time to switch.
 *
 *   build/dev/bench/bench_skills MODEL.cmf [N_SKILLS] [DIR]     20, /tmp
 *
 * Makes a copy of the model with N skills, each of which replaces the FFN of the upper half of the
 * layers, runs one of them on 64 tokens, and then switches through all.
 * {"n_skills":20,"base_bytes":B,"skill_bytes":S,"file_bytes":F,  payloads of the base, of one skill
 *  "anon_bytes":A,"mapped_bytes":M,       resident after the answer, less what was before the open
 *  "want_bytes":W,"ratio":R,              weights that the skill's run reads; mapped / want
 *  "first_switch_us":{...},"switch_us":{"median":..,"max":..}} */
#include <inttypes.h>
#include <unistd.h>

#include "bench.h"
#include "engine/session.h"

enum { MAX_SKILLS = 64, N_TOKENS = 64 };

static void need(caisson_status s, const caisson_error *err) {
    if (s != CAISSON_OK) {
        char line[1024];
        (void)fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
        exit(1);
    }
}

/* kB of a line of /proc/self/status, as bytes. */
static uint64_t status_bytes(const char *name) {
    char line[256];
    uint64_t kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kb = strtoull(line + strlen(name), NULL, 10);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return kb * 1024;
}

static bool is_replaced(const csn_cmf *c, csn_str name) {
    for (uint32_t i = c->arch.n_layers / 2; i < c->arch.n_layers; i++) {
        char prefix[64];
        int n = snprintf(prefix, sizeof(prefix), "model.layers.%u.mlp.", i);
        if (csn_str_starts(name, csn_str_make(prefix, (size_t)n))) {
            return true;
        }
    }
    return false;
}

struct sizes {
    uint64_t base, skill; /* payload bytes */
};

/* The base's tensors, then for each skill the replaced ones with the base's own bytes: only sizes
 * and places matter here. */
static struct sizes make_file(const char *source, const char *path, uint32_t n_skills) {
    caisson_error err;
    csn_cmf *c;
    csn_cmf_writer *w;
    uint32_t n_done;
    struct sizes sizes = {0};
    need(csn_cmf_open(csn_fs_os(), source, &c, &err), &err);
    uint32_t most = c->dir.n * (n_skills + 1);
    csn_cmf_plan_tensor *t = calloc(most, sizeof(*t));
    const csn_tensor **from = calloc(most, sizeof(const csn_tensor *));
    char(*names)[256] = calloc(most, sizeof(*names));
    if (t == NULL || from == NULL || names == NULL) {
        abort();
    }
    uint32_t n = 0;
    for (uint32_t k = 0; k <= n_skills; k++) {
        for (uint32_t i = 0; i < c->dir.n; i++) {
            const csn_tensor *x = &c->dir.tensors[i];
            if (k > 0 && !is_replaced(c, x->name)) {
                continue;
            }
            char prefix[32] = "";
            if (k > 0) {
                (void)snprintf(prefix, sizeof(prefix), "skill.s%u.", k - 1);
            }
            (void)snprintf(names[n], sizeof(names[n]), "%s%.*s", prefix, CSN_STR_ARGS(x->name));
            t[n] = (csn_cmf_plan_tensor){
                .name = csn_str_from(names[n]), .dtype = x->dtype, .shape = x->shape};
            from[n++] = x;
            *(k == 0 ? &sizes.base : &sizes.skill) += k < 2 ? x->nbytes : 0;
        }
    }
    csn_cmf_plan plan = {.tensors = t, .n = n, .head_bytes = c->envelope.len[CSN_CMF_HEADER] * 2};
    need(csn_cmf_writer_new(csn_fs_os(), path, &plan, &w, &n_done, &err), &err);
    for (uint32_t i = n_done; i < n; i++) {
        uint8_t *bytes = malloc(from[i]->nbytes + 1);
        if (bytes == NULL) {
            abort();
        }
        need(csn_file_read_at(c->file, from[i]->offset, bytes, from[i]->nbytes, &err), &err);
        need(csn_cmf_writer_tensor(w, bytes, from[i]->nbytes, &err), &err);
        free(bytes);
    }
    csn_buf header = CSN_BUF_INIT(1 << 24);
    csn_jw jw = csn_jw_begin(&header, &err);
    csn_cmf_header_write(c, (csn_str){"", 0}, &jw);
    need(csn_jw_end(&jw), &err);
    need(csn_cmf_writer_finish(w, csn_buf_view(&header), (csn_str){"", 0}, &err), &err);
    csn_cmf_writer_close(w, true);
    csn_buf_free(&header);
    csn_cmf_close(c);
    free(names);
    free(from);
    free(t);
    return sizes;
}

/* Runs the skill on some tokens, so that all its weights are read. */
static void run(csn_session *s) {
    int32_t ids[N_TOKENS];
    caisson_error err;
    for (int i = 0; i < N_TOKENS; i++) {
        ids[i] = i + 1;
    }
    need(csn_session_eval(s, ids, N_TOKENS, false, NULL, NULL, NULL, &err), &err);
}

/* One switch to each skill in turn; microseconds, in rising order. */
static void switch_all(csn_session *s, uint32_t n_skills, double *us) {
    caisson_error err;
    for (uint32_t k = 0; k < n_skills; k++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "s%u", k);
        uint64_t t0 = csn_now_ns();
        need(csn_session_set_skill(s, csn_str_from(id), &err), &err);
        us[k] = (double)(csn_now_ns() - t0) * 1e-3;
    }
    qsort(us, n_skills, sizeof(*us), bench_cmp);
}

static void print_times(const char *name, const double *us, uint32_t n) {
    printf("\"%s\":{\"median\":%.2f,\"max\":%.2f}", name, us[n / 2], us[n - 1]);
}

int main(int argc, char **argv) {
    uint32_t n = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 20;
    if (argc < 2 || n < 1 || n > MAX_SKILLS) {
        (void)fprintf(stderr, "usage: bench_skills MODEL.cmf [N_SKILLS 1..64] [DIR]\n");
        return 2;
    }
    char path[512];
    caisson_error err;
    (void)snprintf(path, sizeof(path), "%s/bench-skills-%d.cmf", argc > 3 ? argv[3] : "/tmp",
                   (int)getpid());
    struct sizes sizes = make_file(argv[1], path, n);
    uint64_t anon = status_bytes("RssAnon:");
    uint64_t mapped = status_bytes("RssFile:");
    csn_cmf *c;
    csn_store *store;
    csn_model *m;
    csn_session *s;
    need(csn_cmf_open(csn_fs_os(), path, &c, &err), &err);
    uint64_t file_bytes = c->envelope.file_bytes;
    need(csn_store_new(c, &(csn_store_options){0}, &store, &err), &err);
    need(csn_model_new(store, &m, &err), &err);
    csn_session_options o = {.n_ctx = 128, .skill = "s3", .compute = CSN_COMPUTE_INT8};
    o.skill = n > 3 ? "s3" : "s0";
    need(csn_session_new(m, &o, &s, &err), &err);
    run(s);
    anon = status_bytes("RssAnon:") - anon;
    mapped = status_bytes("RssFile:") - mapped;
    double first[MAX_SKILLS];
    double later[MAX_SKILLS];
    switch_all(s, n, first);
    switch_all(s, n, later);
    printf("{\"n_skills\":%u,\"base_bytes\":%" PRIu64 ",\"skill_bytes\":%" PRIu64
           ",\"file_bytes\":%" PRIu64 ",\"anon_bytes\":%" PRIu64 ",\"mapped_bytes\":%" PRIu64
           ",\"want_bytes\":%" PRIu64 ",\"ratio\":%.4f,",
           n, sizes.base, sizes.skill, file_bytes, anon, mapped, sizes.base,
           (double)mapped / (double)sizes.base);
    print_times("first_switch_us", first, n);
    printf(",");
    print_times("switch_us", later, n);
    puts("}");
    csn_session_free(s);
    csn_model_free(m);
    (void)unlink(path);
    return 0;
}
