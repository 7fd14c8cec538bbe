/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizer for scripts: tokenizer_probe FILE [flags]. Reads texts from standard input, each as a
 * little-endian u32 length and its bytes; for each writes a u32 number of ids, the ids, and three
 * texts in the same form: decoded whole, decoded whole without special tokens, decoded as a stream.
 * flags: those of csn_tokenizer_encode (default 3); 16 = as marked text of which nothing is
 * trusted. A failed text gives 0xffffffff and the sentence. tests/oracle/tokenizer_real.py drives
 * it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"
#include "base/utf8.h"
#include "caisson/limits.h"
#include "text/tokenizer/tokenizer.h"

static bool read_u32(uint32_t *v) {
    return fread(v, sizeof(*v), 1, stdin) == 1;
}

static void write_text(csn_str s) {
    uint32_t n = (uint32_t)s.len;
    fwrite(&n, sizeof(n), 1, stdout);
    fwrite(s.ptr, 1, s.len, stdout);
}

enum { UNTRUSTED = 16 };

static caisson_status encode(const csn_tokenizer *t, csn_str text, unsigned flags, csn_ids *ids,
                             caisson_error *err) {
    if ((flags & UNTRUSTED) == 0) {
        return csn_tokenizer_encode(t, text, flags, ids, err);
    }
    uint8_t *trust = calloc(1, text.len + 1);
    if (trust == NULL) {
        exit(1);
    }
    caisson_status status =
        csn_tokenizer_encode_marked(t, text, trust, flags & ~(unsigned)UNTRUSTED, ids, err);
    free(trust);
    return status;
}

static caisson_status stream(const csn_tokenizer *t, const csn_ids *ids, csn_buf *out,
                             caisson_error *err) {
    csn_detok *d;
    CSN_TRY(csn_detok_new(t, false, &d, err));
    caisson_status status = CAISSON_OK;
    for (size_t i = 0; i < ids->n && status == CAISSON_OK; i++) {
        size_t from = out->len;
        status = csn_detok_feed(d, ids->id[i], out, err);
        csn_str part = csn_str_make(out->ptr + from, out->len - from);
        if (part.len > 0 && !csn_utf8_valid(part, NULL)) {
            fprintf(stderr, "part ends inside a code point\n");
            exit(3);
        }
    }
    status = status == CAISSON_OK ? csn_detok_flush(d, out, err) : status;
    csn_detok_free(d);
    return status;
}

int main(int argc, char **argv) {
    caisson_error err;
    char line[1024];
    csn_buf file = CSN_BUF_INIT(0);
    csn_tokenizer *t = NULL;
    unsigned flags = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 3;
    if (argc < 2 ||
        csn_fs_read_all(csn_fs_os(), argv[1], CAISSON_MAX_TOKENIZER_BYTES, &file, &err) !=
            CAISSON_OK ||
        csn_tokenizer_load(csn_buf_view(&file), &t, &err) != CAISSON_OK) {
        fprintf(stderr, "%s\n",
                argc < 2 ? "usage" : caisson_error_format(&err, line, sizeof(line)));
        return 1;
    }
    csn_buf_free(&file);
    csn_buf text = CSN_BUF_INIT(SIZE_MAX / 2);
    csn_buf out[3] = {CSN_BUF_INIT(1u << 30), CSN_BUF_INIT(1u << 30), CSN_BUF_INIT(1u << 30)};
    csn_ids ids = {0};
    uint32_t n;
    while (read_u32(&n)) {
        text.len = 0;
        ids.n = 0;
        out[0].len = out[1].len = out[2].len = 0;
        if (csn_buf_reserve(&text, n, &err) != CAISSON_OK || fread(text.ptr, 1, n, stdin) != n) {
            return 1;
        }
        text.len = n;
        if (encode(t, csn_buf_view(&text), flags, &ids, &err) != CAISSON_OK ||
            csn_tokenizer_decode(t, ids.id, ids.n, false, &out[0], &err) != CAISSON_OK ||
            csn_tokenizer_decode(t, ids.id, ids.n, true, &out[1], &err) != CAISSON_OK ||
            stream(t, &ids, &out[2], &err) != CAISSON_OK) {
            uint32_t failed = UINT32_MAX;
            fwrite(&failed, sizeof(failed), 1, stdout);
            write_text(csn_str_from(caisson_error_format(&err, line, sizeof(line))));
            fflush(stdout);
            continue;
        }
        uint32_t n_ids = (uint32_t)ids.n;
        fwrite(&n_ids, sizeof(n_ids), 1, stdout);
        fwrite(ids.id, sizeof(*ids.id), ids.n, stdout);
        for (int i = 0; i < 3; i++) {
            write_text(csn_buf_view(&out[i]));
        }
        fflush(stdout);
    }
    csn_buf_free(&text);
    for (int i = 0; i < 3; i++) {
        csn_buf_free(&out[i]);
    }
    csn_ids_free(&ids);
    csn_tokenizer_free(t);
    return 0;
}
