/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts, from the tables. */
#include <string.h>

#include "cli.h"

enum { WIDTH = 90, INDENT = 30 };

/* Prints words wrapped at WIDTH; the first line starts at `column`, the others at `indent`. */
static void put_wrapped(FILE *out, const char *text, int column, int indent) {
    const char *p = text;
    bool first = true;
    while (*p != '\0') {
        size_t n = strcspn(p, " ");
        if (!first && column + 1 + (int)n > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fwrite(p, 1, n, out);
        column += (int)n;
        p += n;
        p += strspn(p, " ");
        first = false;
    }
}

static void put_option(FILE *out, const cli_option *o) {
    char left[96];
    int n =
        snprintf(left, sizeof(left), "  %s%s%s--%s%s%s", o->short_name != NULL ? "-" : "",
                 o->short_name != NULL ? o->short_name : "", o->short_name != NULL ? ", " : "    ",
                 o->name, o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
    fputs(left, out);
    if (n >= INDENT - 1) {
        fprintf(out, "\n%*s", INDENT, "");
    } else {
        fprintf(out, "%*s", INDENT - n, "");
    }
    char right[768];
    size_t k = (size_t)snprintf(right, sizeof(right), "%s", o->help);
    if (o->kind == CLI_CHOICE) {
        for (unsigned i = 0; o->choices(i) != NULL && k < sizeof(right) - 1; i++) {
            k += (size_t)snprintf(right + k, sizeof(right) - k, "%s%s", i == 0 ? " (" : ", ",
                                  o->choices(i));
        }
        k += k < sizeof(right) - 1 ? (size_t)snprintf(right + k, sizeof(right) - k, ")") : 0;
    }
    if (o->by_default != NULL && k < sizeof(right) - 1) {
        snprintf(right + k, sizeof(right) - k, " [default: %s]", o->by_default);
    }
    put_wrapped(out, right, INDENT, INDENT);
    fputc('\n', out);
}

/* Paragraphs are separated by '\n'; each is wrapped on its own. */
static void put_paragraphs(FILE *out, const char *text) {
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        char line[2048];
        size_t k = n < sizeof(line) - 1 ? n : sizeof(line) - 1;
        memcpy(line, text, k);
        line[k] = '\0';
        put_wrapped(out, line, 0, 0);
        fputc('\n', out);
        text += n + (text[n] == '\n');
    }
}

void cli_print_help(const cli_command *c, FILE *out) {
    fprintf(out, "%s\n\nUsage: caisson %s [OPTIONS] %s\n", c->summary, c->name, c->positionals);
    if (c->details != NULL) {
        fputc('\n', out);
        put_paragraphs(out, c->details);
    }
    fputs("\nOptions:\n", out);
    for (size_t g = 0; c->groups[g] != NULL; g++) {
        for (const cli_option *o = c->groups[g]; o->name != NULL; o++) {
            put_option(out, o);
        }
    }
    if (c->examples != NULL) {
        fputs("\nExamples:\n", out);
        const char *p = c->examples;
        while (*p != '\0') {
            size_t n = strcspn(p, "\n");
            fprintf(out, "  %.*s\n", (int)n, p);
            p += n + (p[n] == '\n');
        }
    }
}

void cli_print_overview(FILE *out) {
    fprintf(out,
            "caisson %s: language models in files that prove their own integrity\n\n"
            "Usage: caisson COMMAND [OPTIONS] ARGUMENTS\n\nCommands:\n",
            caisson_version());
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, "  %-12s%s\n", (*c)->name, (*c)->summary);
    }
    fputs("\nStart with:\n"
          "  caisson convert MODEL.gguf -o model.cmf     make a .cmf of a GGUF file\n"
          "  caisson run model.cmf \"Why is the sky blue?\"\n"
          "  caisson chat model.cmf\n\n"
          "caisson help COMMAND shows its options; caisson --version the version.\n"
          "Exit codes: 0 ok, 1 failed or not valid, 2 usage, 130 interrupted.\n",
          out);
}
