/* SPDX-License-Identifier: Apache-2.0 */
/* The parser, driven by the tables: --name VALUE, --name=VALUE, -n VALUE, -nVALUE, -- ends options,
 * - is a positional (standard input). A word that starts with '-' and is no option is refused, so
 * that a typing error never becomes a prompt or a file name. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "open.h"
#include "term.h"

int cli_usage_error(const cli_command *command, const char *format, ...) {
    const char *name = command != NULL ? command->name : NULL;
    fprintf(stderr, "caisson%s%s: ", name != NULL ? " " : "", name != NULL ? name : "");
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    cli_put_printable(stderr, text, strlen(text));
    fprintf(stderr, "\nTry: caisson %s%s--help\n", name != NULL ? name : "",
            name != NULL ? " " : "");
    return CLI_USAGE;
}

static bool read_int(const char *text, double min, double max, int64_t *ret) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || (double)v < min || (double)v > max) {
        return false;
    }
    *ret = v;
    return true;
}

static bool read_real(const char *text, double min, double max, double *ret) {
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v) || v < min || v > max) {
        return false;
    }
    *ret = v;
    return true;
}

static bool is_choice(const cli_option *o, const char *text) {
    for (unsigned i = 0; o->choices(i) != NULL; i++) {
        if (strcmp(o->choices(i), text) == 0) {
            return true;
        }
    }
    return false;
}

static int bad_value(const cli_args *a, const cli_option *o, const char *text) {
    char want[256] = "";
    if (o->kind == CLI_INT) {
        snprintf(want, sizeof(want), "a whole number from %.0f to %.0f", o->min, o->max);
    } else if (o->kind == CLI_REAL) {
        snprintf(want, sizeof(want), "a number from %g to %g", o->min, o->max);
    } else {
        size_t n = (size_t)snprintf(want, sizeof(want), "one of");
        for (unsigned i = 0; o->choices(i) != NULL && n < sizeof(want) - 1; i++) {
            int k = snprintf(want + n, sizeof(want) - n, "%s %s", i > 0 ? "," : "", o->choices(i));
            n += k > 0 ? (size_t)k : 0;
        }
    }
    return cli_usage_error(a->command, "--%s must be %s, not \"%s\"", o->name, want, text);
}

static int store(cli_args *a, size_t i, const char *text) {
    const cli_option *o = a->options[i];
    cli_value *v = &a->values[i];
    bool ok = true;
    switch (o->kind) {
    case CLI_FLAG: break;
    case CLI_INT: ok = read_int(text, o->min, o->max, &v->integer); break;
    case CLI_REAL: ok = read_real(text, o->min, o->max, &v->real); break;
    case CLI_CHOICE: ok = is_choice(o, text); break;
    case CLI_TEXT:
    case CLI_PATH: break;
    case CLI_LIST: {
        const char **list = realloc(v->list, (v->n_list + 1) * sizeof(*list));
        if (list == NULL) {
            return cli_fail_text(a, "out of memory");
        }
        v->list = list;
        v->list[v->n_list++] = text;
        break;
    }
    }
    if (!ok) {
        return bad_value(a, o, text);
    }
    v->given = true;
    v->text = text;
    return CLI_OK;
}

/* The option that `word` names, and its attached value if there is one (else *ret_value NULL). */
static bool find_long(const cli_args *a, const char *word, size_t *ret_i, const char **ret_value) {
    const char *eq = strchr(word, '=');
    size_t n = eq != NULL ? (size_t)(eq - word) : strlen(word);
    for (size_t i = 0; i < a->n_options; i++) {
        const char *name = a->options[i]->name;
        if (strlen(name) == n && memcmp(name, word, n) == 0) {
            *ret_i = i;
            *ret_value = eq != NULL ? eq + 1 : NULL;
            return true;
        }
    }
    return false;
}

/* Short names may have two letters (-ub), so the longest one that begins the word is meant; what
 * follows it is the value (-t4), except behind a flag. */
static bool find_short(const cli_args *a, const char *word, size_t *ret_i, const char **ret_value) {
    size_t best = 0;
    for (size_t i = 0; i < a->n_options; i++) {
        const char *name = a->options[i]->short_name;
        size_t n = name != NULL ? strlen(name) : 0;
        if (n > best && strncmp(name, word, n) == 0 &&
            (word[n] == '\0' || a->options[i]->kind != CLI_FLAG)) {
            best = n;
            *ret_i = i;
            *ret_value = word[n] != '\0' ? word + n : NULL;
        }
    }
    return best > 0;
}

enum { MAX_GUESSED = 24 };

static unsigned min2(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Letters put in, left out, replaced, or swapped with the next, to make b of a. */
static unsigned distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    unsigned d[MAX_GUESSED + 1][MAX_GUESSED + 1];
    for (size_t i = 0; i <= n_a; i++) {
        d[i][0] = (unsigned)i;
    }
    for (size_t j = 0; j <= n_b; j++) {
        d[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        for (size_t j = 1; j <= n_b; j++) {
            unsigned replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = min2(replaced, min2(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                d[i][j] = min2(d[i][j], d[i - 2][j - 2] + 1);
            }
        }
    }
    return d[n_a][n_b];
}

void cli_guess_try(cli_guess *g, const char *name) {
    size_t n = strlen(name);
    size_t n_less = n < g->n ? n : g->n;
    if (n_less < 3 || n > MAX_GUESSED || g->n > MAX_GUESSED) {
        return;
    }
    /* --temperature means --temp, --cache means --cache-type-k */
    unsigned d = strncmp(name, g->word, n_less) == 0 ? 1 : distance(g->word, g->n, name, n);
    if (d <= (n_less - 1) / 2 && d <= 2 && (g->name == NULL || d < g->distance)) {
        g->name = name;
        g->distance = d;
    }
}

static int unknown_option(const cli_args *a, const char *arg) {
    if (arg[1] != '-') {
        return cli_usage_error(a->command,
                               "unknown option \"%s\" (write -- before an argument that begins "
                               "with -)",
                               arg);
    }
    cli_guess guess = {.word = arg + 2, .n = strcspn(arg + 2, "=")};
    for (size_t i = 0; i < a->n_options; i++) {
        cli_guess_try(&guess, a->options[i]->name);
    }
    return guess.name != NULL
               ? cli_usage_error(a->command, "unknown option \"%s\"; did you mean --%s?", arg,
                                 guess.name)
               : cli_usage_error(a->command, "unknown option \"%s\"", arg);
}

static int take_option(cli_args *a, int argc, char **argv, int *i_arg) {
    const char *arg = argv[*i_arg];
    bool is_long = arg[1] == '-';
    size_t i;
    const char *value;
    if (!(is_long ? find_long(a, arg + 2, &i, &value) : find_short(a, arg + 1, &i, &value))) {
        return unknown_option(a, arg);
    }
    const cli_option *o = a->options[i];
    if (o->kind == CLI_FLAG) {
        return value == NULL ? store(a, i, "")
                             : cli_usage_error(a->command, "--%s takes no value", o->name);
    }
    if (value == NULL) {
        if (*i_arg + 1 >= argc) {
            return cli_usage_error(a->command, "%s needs a value %s", arg, o->value);
        }
        value = argv[++*i_arg];
    }
    return store(a, i, value);
}

static int check_positionals(const cli_args *a) {
    const cli_command *c = a->command;
    if (a->n_positional < c->min_args) {
        return cli_usage_error(c, "missing argument; usage: caisson %s %s", c->name,
                               c->positionals);
    }
    if (a->n_positional > c->max_args) {
        return cli_usage_error(c, "unexpected argument \"%s\"%s", a->positional[c->max_args],
                               c->max_args > 1 ? " (put a text of several words in quotes)" : "");
    }
    return CLI_OK;
}

int cli_parse(const cli_command *command, int argc, char **argv, cli_args *ret) {
    memset(ret, 0, sizeof(*ret));
    ret->command = command;
    for (size_t g = 0; command->groups[g] != NULL; g++) {
        for (const cli_option *o = command->groups[g]; o->name != NULL; o++) {
            ret->options[ret->n_options++] = o;
        }
    }
    ret->positional = malloc(((size_t)argc + 1) * sizeof(*ret->positional));
    if (ret->positional == NULL) {
        return cli_fail_text(ret, "out of memory");
    }
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1] != '\0') {
            int rc = take_option(ret, argc, argv, &i);
            if (rc != CLI_OK) {
                return rc;
            }
        } else {
            ret->positional[ret->n_positional++] = argv[i];
        }
    }
    ret->wants_help = cli_has(ret, "help");
    return ret->wants_help ? CLI_OK : check_positionals(ret);
}

void cli_args_done(cli_args *a) {
    for (size_t i = 0; i < a->n_options; i++) {
        free(a->values[i].list);
    }
    free(a->positional);
    memset(a, 0, sizeof(*a));
}

const cli_value *cli_get(const cli_args *a, const char *name) {
    static const cli_value absent;
    for (size_t i = 0; i < a->n_options; i++) {
        if (strcmp(a->options[i]->name, name) == 0) {
            return &a->values[i];
        }
    }
    return &absent; /* an option that this command does not have was not given */
}

bool cli_knows(const cli_args *a, const char *name) {
    for (size_t i = 0; i < a->n_options; i++) {
        if (strcmp(a->options[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

bool cli_has(const cli_args *a, const char *name) {
    return cli_get(a, name)->given;
}

int64_t cli_int(const cli_args *a, const char *name, int64_t otherwise) {
    const cli_value *v = cli_get(a, name);
    return v->given ? v->integer : otherwise;
}

double cli_real(const cli_args *a, const char *name, double otherwise) {
    const cli_value *v = cli_get(a, name);
    return v->given ? v->real : otherwise;
}

const char *cli_text(const cli_args *a, const char *name, const char *otherwise) {
    const cli_value *v = cli_get(a, name);
    return v->given ? v->text : otherwise;
}

uint32_t cli_ctx(const cli_args *a, uint32_t otherwise) {
    int64_t n = cli_int(a, "ctx", otherwise);
    return n == 0 && cli_has(a, "ctx") ? CAISSON_CTX_TRAINED : (uint32_t)n;
}
