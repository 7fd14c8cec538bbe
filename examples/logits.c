/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the five likeliest tokens behind a text, then samples a few more by hand: what
 * caisson_generate does, step by step.
 *
 *   example_logits model.cmf "The capital of France is"
 */
#include <stdio.h>
#include <string.h>

#include <caisson.h>

static int fail(const caisson_error *err) {
    char line[512];
    fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
    return 1;
}

static void print_best(const caisson_model *model, const float *logits) {
    int32_t shown[5];
    for (int k = 0; k < 5; k++) {
        int32_t best = -1;
        for (int32_t i = 0; i < (int32_t)caisson_model_n_vocab(model); i++) {
            bool is_shown = false;
            for (int s = 0; s < k; s++) {
                is_shown = is_shown || shown[s] == i;
            }
            if (!is_shown && (best < 0 || logits[i] > logits[best])) {
                best = i;
            }
        }
        const char *text = "";
        size_t n = 0;
        (void)caisson_model_token(model, best, &text, &n);
        printf("%8d  %9.4f  %.*s\n", best, (double)logits[best], (int)n, text);
        shown[k] = best;
    }
}

static caisson_status go_on(caisson_model *model, caisson_session *session, int n_tokens,
                            caisson_error *err) {
    caisson_sampling options = {.struct_size = sizeof(options), .temperature = 0.7f, .seed = 1};
    caisson_sampler *sampler = NULL;
    caisson_stream *stream = NULL;
    caisson_status status =
        caisson_sampler_new(&options, caisson_model_n_vocab(model), &sampler, err);
    if (status == CAISSON_OK) {
        status = caisson_stream_new(model, true, &stream, err);
    }
    for (int i = 0; i < n_tokens && status == CAISSON_OK; i++) {
        int32_t id;
        const char *text;
        size_t n;
        status = caisson_sampler_pick(sampler, caisson_session_logits(session), &id, err);
        if (status == CAISSON_OK) {
            caisson_sampler_accept(sampler, id);
            status = caisson_stream_feed(stream, id, &text, &n, err);
        }
        if (status == CAISSON_OK) {
            fwrite(text, 1, n, stdout);
            status = caisson_session_eval(session, &id, 1, NULL, NULL, err);
        }
    }
    fputc('\n', stdout);
    caisson_stream_free(stream);
    caisson_sampler_free(sampler);
    return status;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.cmf [TEXT]\n", argv[0]);
        return 2;
    }
    const char *text = argc > 2 ? argv[2] : "Hello";
    caisson_error err;
    caisson_model *model = NULL;
    caisson_session *session = NULL;
    caisson_ids ids = {0};
    int rc = 0;

    if (caisson_model_open(argv[1], NULL, &model, &err) != CAISSON_OK) {
        return fail(&err);
    }
    caisson_session_options options = {
        .struct_size = sizeof(options), .n_ctx = 256, .compute = CAISSON_COMPUTE_F32};
    caisson_status status = caisson_session_new(model, &options, &session, &err);
    if (status == CAISSON_OK) {
        status =
            caisson_model_tokenize(model, text, strlen(text), CAISSON_TOKENIZE_PROMPT, &ids, &err);
    }
    if (status == CAISSON_OK) {
        status = caisson_session_eval(session, ids.id, ids.n, NULL, NULL, &err);
    }
    if (status == CAISSON_OK) {
        print_best(model, caisson_session_logits(session));
        status = go_on(model, session, 12, &err);
    }
    if (status != CAISSON_OK) {
        rc = fail(&err);
    }
    caisson_ids_free(&ids);
    caisson_session_free(session);
    caisson_model_close(model);
    return rc;
}
