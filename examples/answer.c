/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a model one question and prints the answer as it comes.
 *
 *   example_answer model.cmf "Why is the sky blue?"
 */
#include <stdio.h>

#include <caisson.h>

static bool print(void *ctx, const char *text, size_t n) {
    (void)ctx;
    fwrite(text, 1, n, stdout);
    return fflush(stdout) == 0; /* false would stop the answer */
}

static int fail(const caisson_error *err) {
    char line[512];
    fprintf(stderr, "%s\n", caisson_error_format(err, line, sizeof(line)));
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s MODEL.cmf [QUESTION]\n", argv[0]);
        return 2;
    }
    caisson_error err;
    caisson_model *model = NULL;
    caisson_session *session = NULL;
    caisson_ids ids = {0};
    int rc = 0;

    if (caisson_model_open(argv[1], NULL, &model, &err) != CAISSON_OK) {
        return fail(&err);
    }
    caisson_message question = {"user", argc > 2 ? argv[2] : "Why is the sky blue?"};
    caisson_chat chat = {.struct_size = sizeof(chat), .messages = &question, .n_messages = 1};
    caisson_sampling sampling = {.struct_size = sizeof(sampling), .greedy = true};
    caisson_generate_options options = {
        .struct_size = sizeof(options),
        .sampling = &sampling,
        .max_tokens = 64,
        .on_text = print,
    };
    caisson_generation done;
    if (caisson_session_new(model, NULL, &session, &err) != CAISSON_OK ||
        caisson_model_encode_chat(model, &chat, &ids, &err) != CAISSON_OK ||
        caisson_generate(session, ids.id, ids.n, &options, &done, &err) != CAISSON_OK) {
        rc = fail(&err);
    } else {
        printf("\n(%u tokens, %.1f tokens/s)\n", done.n_generated,
               done.decode_ns > 0 ? done.n_decode * 1e9 / (double)done.decode_ns : 0.0);
    }
    caisson_ids_free(&ids);
    caisson_session_free(session);
    caisson_model_close(model);
    return rc;
}
