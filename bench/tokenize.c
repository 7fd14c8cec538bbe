/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a tokenizer.json, encoding and decoding a text with it, one thread.
 *
 *   build/dev/bench/bench_tokenize TOKENIZER.json [TEXT] [--seconds 1]
 *
 * {"load_s":L,"json_s":J,"encode_mb_s":E,"decode_mb_s":D,"text_bytes":B,"tokens":N}
 * json_s is the part of load_s that parses JSON. Times are CPU time of the process, the best of
 * several passes: the machine is shared. TEXT (default bench/text/harbour.txt) is repeated to at
 * least 1 MB; MB are 10^6 bytes of text. */
#include <time.h>

#include "base/io.h"
#include "base/json.h"
#include "bench.h"
#include "caisson/limits.h"
#include "text/tokenizer/tokenizer.h"

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(caisson_status status, const caisson_error *err) {
    char line[1024];
    if (status != CAISSON_OK) {
        (void)fprintf(stderr, "bench: %s\n", caisson_error_format(err, line, sizeof(line)));
        exit(1);
    }
}

static double least(double a, double b) {
    return b < a ? b : a;
}

int main(int argc, char **argv) {
    enum { TEXT_BYTES = 1000000, LOADS = 5 };
    caisson_error err;
    csn_buf json = CSN_BUF_INIT(0);
    csn_buf once = CSN_BUF_INIT(0);
    csn_buf text = CSN_BUF_INIT(1u << 30);
    csn_buf back = CSN_BUF_INIT(1u << 30);
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench_tokenize TOKENIZER.json [TEXT] [--seconds 1]\n");
        return 2;
    }
    const char *path = argc > 2 && argv[2][0] != '-' ? argv[2] : "bench/text/harbour.txt";
    double seconds = bench_arg(argc, argv, "--seconds", 1);
    must(csn_fs_read_all(csn_fs_os(), argv[1], CAISSON_MAX_TOKENIZER_BYTES, &json, &err), &err);
    must(csn_fs_read_all(csn_fs_os(), path, 1u << 28, &once, &err), &err);
    do {
        must(csn_buf_str(&text, csn_buf_view(&once), &err), &err);
    } while (text.len < TEXT_BYTES && once.len > 0);

    double json_s = 1e9;
    double load_s = 1e9;
    csn_tokenizer *t = NULL;
    for (int i = 0; i < LOADS; i++) {
        csn_json *doc;
        double from = cpu_s();
        must(csn_json_parse(csn_buf_view(&json), 0, &doc, &err), &err);
        json_s = least(json_s, cpu_s() - from);
        csn_json_free(doc);
        csn_tokenizer_free(t);
        from = cpu_s();
        must(csn_tokenizer_load(csn_buf_view(&json), &t, &err), &err);
        load_s = least(load_s, cpu_s() - from);
    }
    csn_ids ids = {0};
    double encode_s = 1e9;
    double decode_s = 1e9;
    double start = cpu_s();
    do {
        ids.n = 0;
        back.len = 0;
        double from = cpu_s();
        must(csn_tokenizer_encode(t, csn_buf_view(&text), CSN_ENC_PARSE_SPECIAL, &ids, &err), &err);
        double mid = cpu_s();
        must(csn_tokenizer_decode(t, ids.id, ids.n, false, &back, &err), &err);
        encode_s = least(encode_s, mid - from);
        decode_s = least(decode_s, cpu_s() - mid);
    } while (cpu_s() - start < seconds);
    double mb = (double)text.len * 1e-6;
    printf("{\"load_s\":%.4f,\"json_s\":%.4f,\"encode_mb_s\":%.1f,\"decode_mb_s\":%.1f,"
           "\"text_bytes\":%zu,\"tokens\":%zu}\n",
           load_s, json_s, mb / encode_s, mb / decode_s, text.len, ids.n);
    csn_tokenizer_free(t);
    csn_ids_free(&ids);
    csn_buf_free(&json);
    csn_buf_free(&once);
    csn_buf_free(&text);
    csn_buf_free(&back);
    return 0;
}
