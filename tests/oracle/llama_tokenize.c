/* SPDX-License-Identifier: Apache-2.0 */
/* llama.cpp's token ids for NUL-separated texts: the peer of tests/oracle/gguf_tokenizer.py, which
 * builds it against the library and headers of the npm package node-llama-cpp (3.21.1).
 *     llama_tokenize MODEL.gguf TEXTS  ->  a line of ids a text */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void silent(enum ggml_log_level level, const char *text, void *user) {
    (void)level;
    (void)text;
    (void)user;
}

int main(int argc, char **argv) {
    static char texts[1 << 24];
    static llama_token ids[1 << 20];
    if (argc != 3) {
        return 2;
    }
    llama_log_set(silent, NULL);
    llama_backend_init();
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(argv[1], params);
    FILE *f = fopen(argv[2], "rb");
    if (model == NULL || f == NULL) {
        return 1;
    }
    size_t n = fread(texts, 1, sizeof(texts) - 1, f);
    for (size_t i = 0; i < n; i += strlen(texts + i) + 1) {
        int k = llama_tokenize(llama_model_get_vocab(model), texts + i, (int)strlen(texts + i), ids,
                               1 << 20, true, true);
        for (int j = 0; j < k; j++) {
            printf("%d ", ids[j]);
        }
        printf("\n");
    }
    return 0;
}
