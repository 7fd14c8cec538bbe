/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates against goldens that transformers and jinja2 made
 * (tests/oracle/template_cases.py), then what no oracle has: errors with their places, limits,
 * failing allocations. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "caisson/limits.h"
#include "text/template/template.h"

static csn_str read_golden(const char *name, char **ret_owned) {
    char path[512];
    snprintf(path, sizeof(path), "%s/tests/golden/template/%s", CSN_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    *ret_owned = malloc(n + 1);
    assert_int_equal(fread(*ret_owned, 1, n, f), n);
    fclose(f);
    return csn_str_make(*ret_owned, n);
}

static caisson_status run(csn_str source, const csn_jval *vars, csn_rendering *ret,
                          caisson_error *err) {
    csn_template *t = NULL;
    *ret = (csn_rendering){0};
    CSN_TRY(csn_template_compile(source, &t, err));
    const csn_template_input in = {.vars = vars, .now_unix = 1785931200}; /* 2026-08-05 12:00 UTC */
    caisson_status s = csn_template_render(t, &in, ret, err);
    csn_template_free(t);
    return s;
}

static caisson_status run_json(csn_str source, const char *vars, csn_rendering *ret,
                               caisson_error *err) {
    csn_json *doc = NULL;
    caisson_error ignored;
    assert_int_equal(csn_json_parse(csn_str_from(vars), 0, &doc, &ignored), CAISSON_OK);
    caisson_status s = run(source, csn_json_root(doc), ret, err);
    csn_json_free(doc);
    return s;
}

static void golden_cases(void **state) {
    (void)state;
    char *owned;
    csn_json *doc;
    caisson_error err;
    csn_str text = read_golden("cases.json", &owned);
    assert_int_equal(csn_json_parse(text, 0, &doc, &err), CAISSON_OK);
    const csn_jval *vars = csn_jval_get(csn_json_root(doc), "vars");
    size_t n_bad = 0;
    size_t n = 0;
    for (csn_jiter it = csn_jval_iter(csn_jval_get(csn_json_root(doc), "cases"));
         csn_jiter_next(&it);) {
        csn_str source = {0};
        csn_str want = {0};
        csn_rendering got;
        csn_jiter part = csn_jval_iter(it.value);
        assert_true(csn_jiter_next(&part));
        assert_true(csn_jval_str(part.value, &source));
        assert_true(csn_jiter_next(&part));
        bool is_text = csn_jval_str(part.value, &want);
        caisson_status s = run(source, vars, &got, &err);
        bool is_good = is_text ? s == CAISSON_OK && csn_str_eq(csn_buf_view(&got.text), want)
                               : s == CAISSON_E_TEMPLATE || s == CAISSON_E_LIMIT;
        if (!is_good) {
            n_bad++;
            print_message("# %.*s\n#  want %.*s\n#  got  %s\n", CSN_STR_ARGS(source),
                          CSN_STR_ARGS(want), s == CAISSON_OK ? got.text.ptr : err.what);
        }
        if (s == CAISSON_OK) {
            assert_int_equal(got.text.len, got.trusted.len);
        }
        csn_rendering_free(&got);
        n++;
    }
    print_message("# %zu cases\n", n);
    assert_true(n > 1000);
    assert_int_equal(n_bad, 0);
    csn_json_free(doc);
    free(owned);
}

/* ---- errors say where ---- */

static void expect_error(csn_str source, const char *vars, caisson_status code, const char *tensor,
                         const char *what) {
    csn_rendering got;
    caisson_error err = {0};
    assert_int_equal(run_json(source, vars, &got, &err), code);
    assert_int_equal(err.code, code);
    assert_string_equal(err.section, "chat_template");
    assert_string_equal(err.tensor, tensor);
    if (what != NULL) {
        assert_string_equal(err.what, what);
    }
}

static void refusals_name_line_and_construct(void **state) {
    (void)state;
    static const char *const cases[][3] = {
        {"\n\n{% include 'x' %}", "line 3: include",
         "this tag is not supported in a chat template"},
        {"{% import 'x' as y %}", "line 1: import", NULL},
        {"\n{% extends 'x' %}", "line 2: extends", NULL},
        {"{% block x %}{% endblock %}", "line 1: block", NULL},
        {"{% autoescape true %}{% endautoescape %}", "line 1: autoescape", NULL},
        {"{% trans %}{% endtrans %}", "line 1: trans", NULL},
        {"x\n{{ y | random }}", "line 2: random", "this filter is not supported"},
        {"{{ y | urlize }}", "line 1: urlize", NULL},
        {"{{ y | no_such }}", "line 1: no_such", "no filter of this name"},
        {"{{ y is no_such }}", "line 1: no_such", "no test of this name"},
        {"\n{{ cycler(1, 2) }}", "line 2: cycler",
         "this function is not supported in a chat template"},
        {"{{ joiner() }}", "line 1: joiner", NULL},
        {"{{ lipsum() }}", "line 1: lipsum", NULL},
        {"a\n{% if x %}\n", "line 2: if", "a block is not closed"},
        {"{{ '\n\n' }}{{ ) }}", "line 3: )", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        csn_template *t = NULL;
        caisson_error err = {0};
        assert_int_equal(csn_template_compile(csn_str_from(cases[i][0]), &t, &err),
                         CAISSON_E_TEMPLATE);
        assert_null(t);
        assert_string_equal(err.section, "chat_template");
        assert_string_equal(err.tensor, cases[i][1]);
        if (cases[i][2] != NULL) {
            assert_string_equal(err.what, cases[i][2]);
        }
    }
}

static void faults_name_the_line(void **state) {
    (void)state;
    expect_error(CSN_STR("a\n{{ x.y.z }}"), "{\"x\": {}}", CAISSON_E_TEMPLATE, "line 2",
                 "'dict object' has no attribute 'y'");
    expect_error(CSN_STR("\n\n{{ tools.x }}"), "{}", CAISSON_E_TEMPLATE, "line 3",
                 "'tools' is undefined");
    expect_error(CSN_STR("{% for m in messages %}\n{{ m.content + 1 }}{% endfor %}"),
                 "{\"messages\": [{\"content\": \"x\"}]}", CAISSON_E_TEMPLATE, "line 2",
                 "unsupported operand type(s) for +: 'str' and 'int'");
}

/* Python's integers know no end; ours do, and say so with line and construct, never with another
 * number. */
static void integers_beyond_64_bits_are_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{{ 9223372036854775807 + 1 }}", "the result of + does not fit into 64 bits"},
        {"{{ -9223372036854775807 - 2 }}", "the result of - does not fit into 64 bits"},
        {"{{ 4611686018427387904 * 2 }}", "the result of * does not fit into 64 bits"},
        {"{{ 2 ** 63 }}", "the result of ** or pow() does not fit into 64 bits"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "the result of // does not fit into 64 bits"},
        {"{{ -(-9223372036854775807 - 1) }}", "the result of unary - does not fit into 64 bits"},
        {"{{ [9223372036854775807, 1] | sum }}", "the result of + does not fit into 64 bits"},
        {"{{ '9223372036854775808' | int }}", "int: the text's integer does not fit into 64 bits"},
        {"{{ 1e30 | int }}", "int: this float has no integer of 64 bits"},
        {"{{ big }}", "the integer 9223372036854775808 does not fit into 64 bits with sign"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char source[256];
        snprintf(source, sizeof(source), "\n\n{%% set x = 1 %%}%s", cases[i][0]);
        bool is_variable = strstr(source, "big") != NULL;
        expect_error(csn_str_from(source), "{\"big\": 9223372036854775808}", CAISSON_E_TEMPLATE,
                     is_variable ? "the variables" : "line 3", cases[i][1]);
    }
    csn_template *t = NULL;
    caisson_error err = {0};
    assert_int_equal(csn_template_compile(CSN_STR("\n{{ 9223372036854775808 }}"), &t, &err),
                     CAISSON_E_TEMPLATE);
    assert_string_equal(err.tensor, "line 2: integer");
    assert_string_equal(err.what, "an integer does not fit into 64 bits");
}

/* U11: the template's own sentence reaches the caller, and is told apart from a fault. */
static void raise_exception_keeps_its_sentence(void **state) {
    (void)state;
    expect_error(CSN_STR("{{ raise_exception('Roles must alternate: ' ~ role) }}"),
                 "{\"role\": \"tool\"}", CAISSON_E_TEMPLATE, "raise_exception",
                 "Roles must alternate: tool");
}

/* U10: what was not given is undefined: false, empty when written, never "None". */
static void missing_variables_are_undefined(void **state) {
    (void)state;
    csn_rendering got;
    caisson_error err;
    assert_int_equal(run_json(CSN_STR("[{{ bos_token }}{% if tools %}T{% endif %}"
                                      "{% if tools is defined %}D{% endif %}]"),
                              "{\"messages\": []}", &got, &err),
                     CAISSON_OK);
    assert_string_equal(got.text.ptr, "[]");
    csn_rendering_free(&got);
}

/* U21: arguments of a tool call as an object or as a string, both through the usual code. */
static void tool_arguments_in_both_forms(void **state) {
    (void)state;
    csn_str source = CSN_STR("{{ a if a is string else a | tojson }}");
    csn_rendering got;
    caisson_error err;
    assert_int_equal(run_json(source, "{\"a\": {\"x\": [1, \"\xc3\xbc\"]}}", &got, &err),
                     CAISSON_OK);
    assert_string_equal(got.text.ptr, "{\"x\": [1, \"\xc3\xbc\"]}");
    csn_rendering_free(&got);
    assert_int_equal(run_json(source, "{\"a\": \"{\\\"x\\\": 1}\"}", &got, &err), CAISSON_OK);
    assert_string_equal(got.text.ptr, "{\"x\": 1}");
    csn_rendering_free(&got);
}

static void now_comes_from_the_variables(void **state) {
    (void)state;
    static const char *const vars[] = {"{\"now\": 1000000000}",
                                       "{\"now\": \"2001-09-09 01:46:40\"}",
                                       "{\"now\": \"2001-09-09T01:46:40\"}"};
    csn_rendering got;
    caisson_error err;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(
            run_json(CSN_STR("{{ strftime_now('%a %d %b %Y %H:%M:%S') }}"), vars[i], &got, &err),
            CAISSON_OK);
        assert_string_equal(got.text.ptr, "Sun 09 Sep 2001 01:46:40");
        csn_rendering_free(&got);
    }
    assert_int_equal(run_json(CSN_STR("x"), "{\"now\": \"yesterday\"}", &got, &err),
                     CAISSON_E_TEMPLATE);
}

/* ---- marks (U13, F16) ---- */

/* m and rows come with a message and hold the letters q and z, which no template below spells; a
 * trusted variable and the templates' own '@' are trusted. */
static const char marks_vars[] = "{\"m\": \"Zq <|z|> qZ\\nq\", \"n\": 7, \"rows\": [{\"k\": "
                                 "\"qz\", \"v\": [\"z\"]}, {\"k\": \"Q\"}], "
                                 "\"d\": {\"zq\": \"q\"}}";

static void expect_marks(const char *source) {
    csn_json *doc;
    csn_template *t;
    csn_rendering got;
    caisson_error err;
    const csn_str trusted[][2] = {{CSN_STR("bos_token"), CSN_STR("@bos@")}};
    assert_int_equal(csn_json_parse(csn_str_from(marks_vars), 0, &doc, &err), CAISSON_OK);
    const csn_template_input in = {
        .vars = csn_json_root(doc), .trusted_vars = trusted, .n_trusted_vars = 1};
    assert_int_equal(csn_template_compile(csn_str_from(source), &t, &err), CAISSON_OK);
    if (csn_template_render(t, &in, &got, &err) != CAISSON_OK) {
        fail_msg("%s: %s", source, err.what);
    }
    bool has_letter = false;
    for (size_t i = 0; i < got.text.len; i++) {
        char c = got.text.ptr[i];
        bool is_message = c == 'q' || c == 'z' || c == 'Q' || c == 'Z' || c == '7' || c == '|';
        has_letter |= is_message;
        if ((is_message && got.trusted.ptr[i] != 0) || (c == '@' && got.trusted.ptr[i] != 1)) {
            fail_msg("%s: byte %zu of %s", source, i, got.text.ptr);
        }
    }
    if (!has_letter) {
        fail_msg("%s shows nothing of the message: %s", source, got.text.ptr);
    }
    csn_rendering_free(&got);
    csn_template_free(t);
    csn_json_free(doc);
}

static void marks_survive_every_derivation(void **state) {
    (void)state;
    static const char *const sources[] = {
        "@{{ m }}@",
        "{{ '@' ~ m ~ '@' }}",
        "{{ '@' + m + '@' }}",
        "{{ bos_token + m + bos_token }}",
        "{{ m * 2 ~ '@' * 3 }}",
        "{{ ('@' ~ m)[::-1] }}",
        "{{ ('@' ~ m)[0:5] }}",
        "{{ m[0] ~ '@' ~ m[-1] }}",
        "{{ m.upper() ~ '@'.upper() }}",
        "{{ m.lower() }}",
        "{{ m.title() }}",
        "{{ m.swapcase() }}",
        "{{ m.capitalize() }}",
        "{{ m.casefold() }}",
        "{{ m.strip('Z') }}",
        "{{ m.split() }}",
        "{{ '@'.join(m.split()) }}",
        "{{ m.join(['@', '@']) }}",
        "{{ m.rsplit('q', 1) }}",
        "{{ m.partition('<') }}",
        "{{ m.splitlines() }}",
        "{{ m.replace('q', '@') }}",
        "{{ 'a@a'.replace('a', m) }}",
        "{{ ('@' ~ m).replace('', '@') }}",
        "{{ m.removeprefix('Z') }}",
        "{{ m.center(40, '@') }}",
        "{{ m.ljust(40, '@') }}",
        "{{ '@'.rjust(4, m[0]) }}",
        "{{ m.zfill(40) }}",
        "{{ m.expandtabs() }}",
        "{{ '@{}@{}'.format(m, n) }}",
        "{{ '@{:@>30}'.format(m) }}",
        "{{ '@{a!r}@'.format(a=m) }}",
        "{{ '{0[k]}@'.format(rows[0]) }}",
        "{{ m.format() ~ '@' }}",
        "{{ '@%s@%d' % (m, n) }}",
        "{{ '%(zq)s@' % d }}",
        "{{ '%r@' % m }}",
        "{{ '@%5s' | format(m) }}",
        "{{ n }}@{{ n + 0 }}{{ n | float }}{{ n | string }}",
        "{{ m | upper }}",
        "{{ m | lower }}",
        "{{ m | title }}",
        "{{ m | capitalize }}",
        "{{ m | trim }}",
        "{{ m | replace('|', '@') }}",
        "{{ '@x@' | replace('x', m) }}",
        "{{ m | indent(2, true) }}",
        "{{ m | indent('@') }}",
        "{{ m | center(60) }}",
        "{{ m | truncate(6, true, '@') }}",
        "{{ m | e }}@",
        "{{ m | safe }}@",
        "{{ ('@' | safe) + m }}",
        "{{ m | forceescape }}",
        "{{ m | urlencode }}",
        "{{ d | xmlattr }}",
        "{{ m | tojson }}",
        "{{ {'@': m} | tojson }}",
        "{{ rows | tojson(indent=2) }}",
        "{{ d | tojson }}",
        "{{ m | list | join('@') }}",
        "{{ rows | map(attribute='k') | join('@') }}",
        "{{ [m, '@'] }}",
        "{{ {'@': m} }}",
        "{{ rows }}",
        "{{ rows[0].items() | list }}",
        "{{ d.keys() | first }}",
        "{{ rows | groupby('k') }}",
        "{{ rows | sort(attribute='k') | map(attribute='k') | list }}",
        "{{ [m] | unique | first }}",
        "{{ m | reverse }}",
        "{{ m | first ~ '@' }}",
        "{{ [m, 'a'] | max }}",
        "{{ rows | map(attribute='v', default='@') | list }}",
        "{{ m | batch(3, '@') | list }}",
        "{{ m | slice(2) | list }}",
        "{{ d | dictsort }}",
        "{{ d | items | list }}",
        "{{ none | default(m) }}{{ x | default(m ~ '@') }}",
        "{% set x %}@{{ m }}{% endset %}{{ x | upper }}",
        "{% filter replace('|', '!') %}@{{ m }}{% endfilter %}",
        "{% macro f(a) %}@{{ a }}{% endmacro %}{{ f(m) }}",
        "{% macro f() %}@{{ caller() }}{% endmacro %}{% call f() %}@{{ m }}{% endcall %}",
        "{% set n = namespace(t='@') %}{% for c in m %}{% set n.t = n.t ~ c %}{% endfor %}{{n.t}}@",
        "{% generation %}@{{ m }}{% endgeneration %}",
        "{% for k, v in d.items() %}{{ k }}@{{ v }}{% endfor %}",
        "{{ dict(a=m) }}",
        "{{ dict(**d) }}@",
        "{{ namespace(**d) }}@",
        "{{ '%s@' | format(**d) }}",
        "{% macro f() %}@{{ kwargs }}{% endmacro %}{{ f(**d) }}",
        ("{% macro f() %}@{{ kwargs | list }}{{ caller() }}{% endmacro %}"
         "{% call f(**d) %}@{% endcall %}"),
        "{{ m if m else '@' }}",
        "{{ m | string ~ '@' }}",
        "{% with a = m %}{{ a }}@{% endwith %}",
    };
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        expect_marks(sources[i]);
    }
}

static void a_variable_of_the_caller_replaces_a_trusted_one(void **state) {
    (void)state;
    csn_json *doc;
    csn_template *t;
    csn_rendering got;
    caisson_error err;
    const csn_str trusted[][2] = {{CSN_STR("a"), CSN_STR("<a>")}, {CSN_STR("b"), CSN_STR("<b>")}};
    assert_int_equal(csn_json_parse(CSN_STR("{\"b\": \"<x>\"}"), 0, &doc, &err), CAISSON_OK);
    assert_int_equal(csn_template_compile(CSN_STR("{{ a }}{{ b }}"), &t, &err), CAISSON_OK);
    const csn_template_input in = {
        .vars = csn_json_root(doc), .trusted_vars = trusted, .n_trusted_vars = 2};
    assert_int_equal(csn_template_render(t, &in, &got, &err), CAISSON_OK);
    assert_string_equal(got.text.ptr, "<a><x>");
    assert_memory_equal(got.trusted.ptr, "\1\1\1\0\0\0", 6);
    csn_rendering_free(&got);
    csn_template_free(t);
    csn_json_free(doc);
}

/* ---- limits (F8) ---- */

static void expect_limit(csn_str source) {
    csn_rendering got;
    caisson_error err = {0};
    caisson_status s = run_json(source, "{}", &got, &err);
    csn_rendering_free(&got);
    assert_int_equal(s, CAISSON_E_LIMIT);
}

static void endless_work_ends(void **state) {
    (void)state;
    expect_limit(
        CSN_STR("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(9) %}"
                "{% endfor %}{% endfor %}{% endfor %}"));
    expect_limit(CSN_STR("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"));
    expect_limit(CSN_STR("{% macro a() %}{% call b() %}{{ a() }}{% endcall %}{% endmacro %}"
                         "{% macro b() %}{{ caller() }}{% endmacro %}{{ a() }}"));
    expect_limit(CSN_STR("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"));
    expect_limit(CSN_STR("{% set ns = namespace(x='ab') %}{% for i in range(99) %}"
                         "{% set ns.x = ns.x ~ ns.x %}{% endfor %}"));
    expect_limit(CSN_STR("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
                         "{% set ns.x = ns.x + ns.x %}{% endfor %}"));
    expect_limit(CSN_STR("{{ 'ab' * 99999999 }}"));
    expect_limit(CSN_STR("{{ [0] * 999999999 }}"));
    expect_limit(CSN_STR("{{ '%99999999d' % 1 }}"));
    expect_limit(CSN_STR("{{ '{:99999999}'.format(1) }}"));
    expect_limit(CSN_STR("{{ 'x'.center(99999999) }}"));
    expect_limit(CSN_STR("{{ 'x' | indent(99999999, true) }}"));
    expect_limit(CSN_STR("{{ [1] | batch(999999999, 0) | list }}"));
    expect_limit(CSN_STR("{{ [1] | slice(999999999) | list }}"));
    expect_limit(CSN_STR("{{ [1] | tojson(indent=99999999) }}"));
    expect_limit(CSN_STR("{{ ('a' * 9999999).replace('', 'b') }}"));
    expect_limit(CSN_STR("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}"));
    expect_limit(CSN_STR(
        "{% set b = 'a' * 9999999 %}{% for i in range(99999) %}{{ b.find('ab') }}{% endfor %}"));
    expect_limit(CSN_STR("{% set b = 'a' * 9999999 %}{% for i in range(99999) %}"
                         "{{ b.rfind('b' ~ 'a' * 99999) }}{% endfor %}"));
    expect_limit(
        CSN_STR("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
                "{% endfor %}{{ ns.x }}"));
    expect_limit(
        CSN_STR("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
                "{% endfor %}{{ ns.x | tojson }}"));
    expect_limit(
        CSN_STR("{% set a = namespace(x=[]) %}{% set b = namespace(x=[]) %}"
                "{% for i in range(9999) %}{% set a.x = [a.x] %}{% set b.x = [b.x] %}{% endfor %}"
                "{{ a.x == b.x }}"));
    expect_limit(CSN_STR("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"));
}

/* prefix, then `unit` n times, then `close` n times. */
static void expect_deep(const char *prefix, const char *unit, const char *close, size_t n) {
    csn_buf b = CSN_BUF_INIT((size_t)64 << 20);
    caisson_error err = {0};
    assert_int_equal(csn_buf_str(&b, csn_str_from(prefix), &err), CAISSON_OK);
    for (size_t i = 0; i < n; i++) {
        csn_buf_str(&b, csn_str_from(unit), &err);
    }
    for (size_t i = 0; i < n; i++) {
        csn_buf_str(&b, csn_str_from(close), &err);
    }
    csn_template *t = NULL;
    caisson_status s = csn_template_compile(csn_buf_view(&b), &t, &err);
    csn_template_free(t);
    csn_buf_free(&b);
    assert_int_equal(s, CAISSON_E_LIMIT);
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    enum { N = 100000 };
    expect_deep("{{ ", "(", ")", N);
    expect_deep("{{ ", "[", "]", N);
    expect_deep("{{ ", "{1:", "}", N);
    expect_deep("{{ a", "[a", "]", N);
    expect_deep("{{ ", "f(", ")", N);
    expect_deep("{{ ", "not ", " ", N);
    expect_deep("{{ ", "- ", " ", N);
    expect_deep("{{ 1", " + 1", " ", N);
    expect_deep("{{ 1", " or 1", " ", N);
    expect_deep("{{ 1", " ** 1", " ", N);
    expect_deep("{{ a", ".a", " ", N);
    expect_deep("{{ a", "|string", " ", N);
    expect_deep("{{ a", " if a else a", " ", N);
    expect_deep("{{ a", "()", " ", N);
    expect_deep("", "{% if a %}", "{% endif %}", N);
    expect_deep("", "{% for a in a %}", "{% endfor %}", N);
    expect_deep("", "{% macro a() %}", "{% endmacro %}", N);
    expect_deep("", "{% filter upper %}", "{% endfilter %}", N);
    expect_deep("", "{% set a %}", "{% endset %}", N);
    expect_deep("", "{% with %}", "{% endwith %}", N);
}

/* The deepest calls over the deepest blocks that compile: the stack must hold. */
static void deep_running_is_refused(void **state) {
    (void)state;
    csn_buf b = CSN_BUF_INIT((size_t)1 << 20);
    caisson_error err = {0};
    csn_buf_str(&b, CSN_STR("{% macro m() %}"), &err);
    for (int i = 0; i < 100; i++) {
        csn_buf_str(&b, CSN_STR("{% for x in [1] %}"), &err);
    }
    csn_buf_str(&b, CSN_STR("{{ "), &err);
    for (int i = 0; i < 60; i++) {
        csn_buf_str(&b, CSN_STR("[("), &err);
    }
    csn_buf_str(&b, CSN_STR("m()"), &err);
    for (int i = 0; i < 60; i++) {
        csn_buf_str(&b, CSN_STR(")]"), &err);
    }
    csn_buf_str(&b, CSN_STR(" }}"), &err);
    for (int i = 0; i < 100; i++) {
        csn_buf_str(&b, CSN_STR("{% endfor %}"), &err);
    }
    csn_buf_str(&b, CSN_STR("{% endmacro %}{{ m() }}"), &err);
    expect_limit(csn_buf_view(&b));
    csn_buf_free(&b);
}

/* ---- allocations ---- */

static const char everything[] =
    "{% macro m(a, b='x') %}{{ a ~ b ~ varargs ~ kwargs }}{{ caller() if caller }}{% endmacro %}"
    "{% set ns = namespace(t='') %}{% for m in messages if m.role is defined %}"
    "{% set ns.t = ns.t ~ m.role | upper %}{{ '%s %5.2f' % (m.role, 2.5) }}{{ "
    "'{:>9}'.format(m.content) }}"
    "{{ m | tojson(indent=2) }}{{ m }}{{ m.content.split() | map('title') | join(',') }}"
    "{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{% endfor %}{% call m(1, 2, 3, c=4) %}x{% "
    "endcall %}"
    "{% set y | trim | replace('a', 'b') %} a {{ ns.t }}{% endset %}{{ y }}{{ messages | "
    "groupby('role') }}"
    "{{ messages | sort(attribute='role,content') | length }}{{ y[::-1] }}{{ dict(a=1) }}{{ "
    "messages[0] | e }}"
    "{{ messages[0].content.rfind('no such needle that is long enough to be reversed') }}"
    "{{ strftime_now('%Y') }}{{ messages | unique(attribute='role') | list | length }}";
static const char everything_vars[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9 llo <b>\"}, {\"role\": "
    "\"assistant\", "
    "\"content\": \"\"}, {\"role\": \"user\", \"content\": \"z\"}]}";

static void every_allocation_may_fail(void **state) {
    (void)state;
    csn_json *doc;
    csn_rendering got;
    caisson_error err;
    assert_int_equal(csn_json_parse(csn_str_from(everything_vars), 0, &doc, &err), CAISSON_OK);
    int64_t n = 0;
    caisson_status s = CAISSON_E_NOMEM;
    for (; s == CAISSON_E_NOMEM && n < 10000; n++) {
        csn_alloc_fail_after(n);
        s = run(csn_str_from(everything), csn_json_root(doc), &got, &err);
        csn_alloc_fail_after(-1);
        if (s == CAISSON_E_NOMEM) {
            assert_int_equal(err.code, CAISSON_E_NOMEM);
            assert_null(got.text.ptr);
        }
    }
    if (s != CAISSON_OK) {
        print_message("# %s: %s\n", err.tensor, err.what);
    }
    assert_int_equal(s, CAISSON_OK);
    assert_true(n > 3);
    csn_rendering_free(&got);
    csn_json_free(doc);
}

static void bytes_that_are_no_text(void **state) {
    (void)state;
    csn_template *t = NULL;
    caisson_error err = {0};
    assert_int_equal(csn_template_compile(CSN_STR("ab\xff"), &t, &err), CAISSON_E_TEMPLATE);
    assert_true(err.has_offset);
    assert_int_equal(err.offset, 2);
    csn_template_free(NULL);
}

static void numbers_ignore_the_locale(void **state) {
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL) {
        skip(); /* scripts/run-tests provides the locale */
    }
    caisson_error err;
    csn_template *t = NULL;
    caisson_status s = csn_template_compile(
        CSN_STR("{{ 1.5 + 0.25 }} {{ '2.5' | float }} {{ '%.1f' % 0.5 }} {{ [0.1] }}"), &t, &err);
    assert_int_equal(s, CAISSON_OK);
    csn_rendering out = {0};
    csn_template_input in = {0};
    s = csn_template_render(t, &in, &out, &err);
    const struct lconv *host = localeconv(); /* the host's locale is as it was */
    assert_string_equal(host->decimal_point, ",");
    setlocale(LC_NUMERIC, "C");
    assert_int_equal(s, CAISSON_OK);
    assert_string_equal(out.text.ptr, "1.75 2.5 0.5 [0.1]");
    csn_rendering_free(&out);
    csn_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(golden_cases),
        cmocka_unit_test(integers_beyond_64_bits_are_refused),
        cmocka_unit_test(refusals_name_line_and_construct),
        cmocka_unit_test(faults_name_the_line),
        cmocka_unit_test(raise_exception_keeps_its_sentence),
        cmocka_unit_test(missing_variables_are_undefined),
        cmocka_unit_test(tool_arguments_in_both_forms),
        cmocka_unit_test(now_comes_from_the_variables),
        cmocka_unit_test(marks_survive_every_derivation),
        cmocka_unit_test(a_variable_of_the_caller_replaces_a_trusted_one),
        cmocka_unit_test(endless_work_ends),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(deep_running_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(bytes_that_are_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
