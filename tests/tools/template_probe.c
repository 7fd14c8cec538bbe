/* SPDX-License-Identifier: Apache-2.0 */
/* Renders templates for tests/oracle/template_real.py and template_cases.py: reads one JSON
 * document a line on standard input, {"template": text, "vars": object, "trusted": object of
 * texts}, and answers each with one line,
 * {"text": ..., "marks": "0110..."} or {"error": sentence, "where": ..., "code": ...}. */
#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "text/template/template.h"

enum { MAX_TRUSTED = 16 };

static void answer(const csn_buf *line) {
    fwrite(line->ptr, 1, line->len, stdout);
    fputc('\n', stdout);
    fflush(stdout);
}

static void render(csn_str text) {
    caisson_error err = {0};
    csn_json *doc = NULL;
    csn_template *t = NULL;
    csn_rendering out = {0};
    csn_str source = {0};
    csn_buf line = CSN_BUF_INIT((size_t)256 << 20);
    caisson_status s = csn_json_parse(text, 0, &doc, &err);
    if (s == CAISSON_OK) {
        csn_jval_str(csn_jval_get(csn_json_root(doc), "template"), &source);
        s = csn_template_compile(source, &t, &err);
    }
    if (s == CAISSON_OK) {
        csn_str trusted[MAX_TRUSTED][2];
        size_t n = 0;
        csn_jiter it = csn_jval_iter(csn_jval_get(csn_json_root(doc), "trusted"));
        while (csn_jiter_next(&it) && n < MAX_TRUSTED) {
            trusted[n][0] = it.key;
            n += csn_jval_str(it.value, &trusted[n][1]);
        }
        csn_template_input in = {.vars = csn_jval_get(csn_json_root(doc), "vars"),
                                 .trusted_vars = (const csn_str(*)[2])trusted,
                                 .n_trusted_vars = n,
                                 .now_unix = 1785931200}; /* 2026-08-05 12:00:00 UTC */
        s = csn_template_render(t, &in, &out, &err);
    }
    caisson_error ignored;
    csn_jw w = csn_jw_begin(&line, &ignored);
    csn_jw_object(&w);
    if (s == CAISSON_OK) {
        csn_jw_key(&w, CSN_STR("text"));
        csn_jw_str(&w, csn_buf_view(&out.text));
        for (size_t i = 0; i < out.trusted.len; i++) {
            out.trusted.ptr[i] = (char)(out.trusted.ptr[i] + '0');
        }
        csn_jw_key(&w, CSN_STR("marks"));
        csn_jw_str(&w, csn_buf_view(&out.trusted));
    } else {
        csn_jw_key(&w, CSN_STR("error"));
        csn_jw_str(&w, csn_str_from(err.what));
        csn_jw_key(&w, CSN_STR("where"));
        csn_jw_str(&w, csn_str_from(err.tensor));
        csn_jw_key(&w, CSN_STR("code"));
        csn_jw_str(&w, csn_str_from(caisson_status_name(s)));
    }
    csn_jw_object_end(&w);
    answer(&line);
    csn_buf_free(&line);
    csn_rendering_free(&out);
    csn_template_free(t);
    csn_json_free(doc);
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        render(csn_str_make(line, (size_t)n));
    }
    free(line);
    return 0;
}
