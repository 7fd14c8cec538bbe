/* SPDX-License-Identifier: Apache-2.0 */
/* Man pages (roff, man macros), from the tables. */
#include <ctype.h>
#include <string.h>

#include "cli.h"

/* Text in roff: backslashes and hyphens escaped, no line begins with a control character. */
static void put_roff(FILE *out, const char *text) {
    bool line_start = true;
    for (const char *p = text; *p != '\0'; p++) {
        if (line_start && (*p == '.' || *p == '\'')) {
            fputs("\\&", out);
        }
        line_start = *p == '\n';
        if (*p == '\\') {
            fputs("\\e", out);
        } else if (*p == '-') {
            fputs("\\-", out);
        } else if (line_start) {
            fputs("\n.PP\n", out);
        } else {
            fputc(*p, out);
        }
    }
}

static void put_heading(FILE *out, const cli_command *c) {
    char title[64];
    snprintf(title, sizeof(title), "CAISSON%s%s", c != NULL ? "-" : "", c != NULL ? c->name : "");
    for (char *p = title; *p != '\0'; p++) {
        *p = (char)toupper((unsigned char)*p);
    }
    fprintf(out, ".TH %s 1 \"\" \"caisson %s\" \"Caisson\"\n.ad l\n.nh\n.SH NAME\n", title,
            caisson_version());
    fprintf(out, "caisson%s%s \\- ", c != NULL ? "\\-" : "", c != NULL ? c->name : "");
    put_roff(out,
             c != NULL ? c->summary : "language models in files that prove their own integrity");
}

static void put_option(FILE *out, const cli_option *o) {
    fputs(".TP\n", out);
    if (o->short_name != NULL) {
        fprintf(out, ".B \\-%s\\fR, \\fB", o->short_name);
    } else {
        fputs(".B ", out);
    }
    fputs("\\-\\-", out);
    put_roff(out, o->name);
    if (o->value != NULL) {
        fprintf(out, " \\fI%s\\fR", o->value);
    }
    fputc('\n', out);
    put_roff(out, o->help);
    for (unsigned i = 0; o->kind == CLI_CHOICE && o->choices(i) != NULL; i++) {
        fprintf(out, "%s%s", i == 0 ? " (" : ", ", o->choices(i));
    }
    fputs(o->kind == CLI_CHOICE ? ")" : "", out);
    if (o->by_default != NULL) {
        fputs(". Default: ", out);
        put_roff(out, o->by_default);
    }
    fputs(".\n", out);
}

static void put_exit_codes(FILE *out) {
    fputs(".SH EXIT STATUS\n0 ok; 1 failed, or a file is not valid; 2 the command line makes no "
          "sense; 130 interrupted.\n",
          out);
}

void cli_print_man(const cli_command *c, FILE *out) {
    put_heading(out, c);
    if (c == NULL) {
        fputs("\n.SH SYNOPSIS\n.B caisson\n.I COMMAND\n[\\fIOPTIONS\\fR] \\fIARGUMENTS\\fR\n"
              ".SH COMMANDS\n",
              out);
        for (const cli_command *const *i = cli_commands; *i != NULL; i++) {
            fprintf(out, ".TP\n.B caisson\\-%s(1)\n", (*i)->name);
            put_roff(out, (*i)->summary);
            fputs(".\n", out);
        }
        put_exit_codes(out);
        return;
    }
    fprintf(out, "\n.SH SYNOPSIS\n.B caisson %s\n[\\fIOPTIONS\\fR] ", c->name);
    put_roff(out, c->positionals);
    if (c->details != NULL) {
        fputs("\n.SH DESCRIPTION\n", out);
        put_roff(out, c->details);
    }
    fputs("\n.SH OPTIONS\n", out);
    for (size_t g = 0; c->groups[g] != NULL; g++) {
        for (const cli_option *o = c->groups[g]; o->name != NULL; o++) {
            put_option(out, o);
        }
    }
    if (c->examples != NULL) {
        fputs(".SH EXAMPLES\n.nf\n", out);
        for (const char *p = c->examples; *p != '\0';) {
            char line[512];
            size_t n = strcspn(p, "\n");
            snprintf(line, sizeof(line), "%.*s", (int)n, p);
            put_roff(out, line);
            fputc('\n', out);
            p += n + (p[n] == '\n');
        }
        fputs(".fi\n", out);
    }
    put_exit_codes(out);
}
