/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp's side of the comparison, through its public C API: bench/peer/compare builds this
 * against the headers and libraries of an npm package that lies outside the repository.
 *
 *   peer LIBDIR bench MODEL.gguf N_PROMPT N_GEN N_THREADS N_PASSES  -> one JSON line a pass
 *   peer LIBDIR quantize SRC.gguf DST.gguf q8_0|q4_0
 *
 * The first pass warms up and is not printed. f16 cache, one ubatch of N_PROMPT, both
 * measured from an empty context as `caisson bench` does, no sampling on either side.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml-backend.h"
#include "llama.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void silent(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) {
        (void)fputs(text, stderr);
    }
}

static int fail(const char *what) {
    (void)fprintf(stderr, "peer: %s\n", what);
    return 1;
}

static int bench(const char *path, int n_prompt, int n_gen, int n_threads, int n_passes) {
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (model == NULL) {
        return fail("cannot load the model");
    }
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)(n_prompt + n_gen + 64);
    p.n_batch = p.n_ubatch = (uint32_t)n_prompt;
    p.n_threads = p.n_threads_batch = n_threads;
    p.type_k = p.type_v = GGML_TYPE_F16;
    struct llama_context *ctx = llama_init_from_model(model, p);
    llama_token *ids = malloc((size_t)n_prompt * sizeof(*ids));
    if (ctx == NULL || ids == NULL) {
        return fail("cannot make a context");
    }
    int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < n_prompt; i++) {
        ids[i] = (llama_token)((i * 7919 + 13) % n_vocab);
    }
    for (int pass = 0; pass <= n_passes; pass++) {
        llama_memory_clear(llama_get_memory(ctx), true);
        double t0 = now();
        if (llama_decode(ctx, llama_batch_get_one(ids, n_prompt)) != 0) {
            return fail("decode failed");
        }
        double t1 = now();
        llama_memory_clear(llama_get_memory(ctx),
                           true); /* decoding starts empty, as in llama-bench */
        double t2 = now();
        for (int i = 0; i < n_gen; i++) {
            llama_token id = ids[i % n_prompt];
            if (llama_decode(ctx, llama_batch_get_one(&id, 1)) != 0) {
                return fail("decode failed");
            }
        }
        double t3 = now();
        if (pass > 0) {
            printf("{\"pp\":%.2f,\"tg\":%.2f}\n", n_prompt / (t1 - t0), n_gen / (t3 - t2));
            (void)fflush(stdout);
        }
    }
    free(ids);
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}

static int quantize(const char *src, const char *dst, const char *type) {
    llama_model_quantize_params p = llama_model_quantize_default_params();
    bool q8 = strcmp(type, "q8_0") == 0;
    p.ftype = q8 ? LLAMA_FTYPE_MOSTLY_Q8_0 : LLAMA_FTYPE_MOSTLY_Q4_0;
    p.allow_requantize = true;
    p.pure = true; /* the head too, as our converter does with one --quant */
    return llama_model_quantize(src, dst, &p) == 0 ? 0 : fail("quantize failed");
}

int main(int argc, char **argv) {
    if (argc < 6) {
        return fail("usage: peer LIBDIR bench|quantize ...");
    }
    llama_log_set(silent, NULL);
    ggml_backend_load_all_from_path(argv[1]);
    llama_backend_init();
    if (strcmp(argv[2], "quantize") == 0) {
        return quantize(argv[3], argv[4], argv[5]);
    }
    if (argc < 8) {
        return fail("usage: peer LIBDIR bench MODEL N_PROMPT N_GEN N_THREADS N_PASSES");
    }
    return bench(argv[3], atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), atoi(argv[7]));
}
