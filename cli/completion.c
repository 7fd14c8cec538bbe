/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts for bash, zsh and fish, from the tables. */
#include <string.h>

#include "cli.h"

/* Text for a single-quoted shell word. */
static void put_quoted(FILE *out, const char *text) {
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'') {
            fputs("'\\''", out);
        } else {
            fputc(*p, out);
        }
    }
}

/* The i-th option of a command over all of its tables; NULL behind the last. */
static const cli_option *option_at(const cli_command *c, size_t i) {
    for (size_t g = 0; c->groups[g] != NULL; g++) {
        for (const cli_option *o = c->groups[g]; o->name != NULL; o++) {
            if (i-- == 0) {
                return o;
            }
        }
    }
    return NULL;
}

static void bash(FILE *out) {
    fputs("# bash completion of caisson; made by: caisson completion bash\n"
          "_caisson() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        words='help --help --version",
          out);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, " %s", (*c)->name);
    }
    fputs("'\n        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return\n    fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          out);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, "    %s)\n        case $prev in\n", (*c)->name);
        for (size_t i_option = 0; option_at(*c, i_option) != NULL; i_option++) {
            const cli_option *o = option_at(*c, i_option);
            if (o->kind != CLI_CHOICE) {
                continue;
            }
            fprintf(out, "        --%s", o->name);
            if (o->short_name != NULL) {
                fprintf(out, "|-%s", o->short_name);
            }
            fputs(") COMPREPLY=($(compgen -W '", out);
            for (unsigned i = 0; o->choices(i) != NULL; i++) {
                fprintf(out, "%s%s", i > 0 ? " " : "", o->choices(i));
            }
            fputs("' -- \"$cur\")); return ;;\n", out);
        }
        fputs("        esac\n        words='", out);
        for (size_t i_option = 0; option_at(*c, i_option) != NULL; i_option++) {
            const cli_option *o = option_at(*c, i_option);
            fprintf(out, "--%s ", o->name);
        }
        fputs("' ;;\n", out);
    }
    fputs("    help) words='", out);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, "%s ", (*c)->name);
    }
    fputs("'; COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n    esac\n"
          "    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
          "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\n"
          "complete -o filenames -F _caisson caisson\n",
          out);
}

/* Text inside [...] of an _arguments specification. */
static void put_zsh(FILE *out, const char *text) {
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'') {
            fputs("'\\''", out);
        } else if (*p == '[' || *p == ']' || *p == ':' || *p == '\\') {
            fprintf(out, "\\%c", *p);
        } else {
            fputc(*p, out);
        }
    }
}

static void zsh_option(FILE *out, const cli_option *o, const char *dashes, const char *name) {
    fprintf(out, " \\\n            '%s%s%s[", o->kind == CLI_LIST ? "*" : "", dashes, name);
    put_zsh(out, o->help);
    fputc(']', out);
    if (o->kind != CLI_FLAG) {
        fprintf(out, ":%s:", o->value);
        if (o->kind == CLI_PATH) {
            fputs("_files", out);
        } else if (o->kind == CLI_CHOICE) {
            fputc('(', out);
            for (unsigned i = 0; o->choices(i) != NULL; i++) {
                fprintf(out, "%s%s", i > 0 ? " " : "", o->choices(i));
            }
            fputc(')', out);
        }
    }
    fputc('\'', out);
}

static void zsh(FILE *out) {
    fputs("#compdef caisson\n# zsh completion of caisson; made by: caisson completion zsh\n"
          "_caisson() {\n    local -a commands\n    commands=(\n",
          out);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, "        '%s:", (*c)->name);
        put_zsh(out, (*c)->summary);
        fputs("'\n", out);
    }
    fputs("        'help:Show the options of a command'\n    )\n"
          "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
          "    local command=$words[2]\n    shift words; (( CURRENT-- ))\n    case $command in\n",
          out);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, "    %s)\n        _arguments", (*c)->name);
        for (size_t i_option = 0; option_at(*c, i_option) != NULL; i_option++) {
            const cli_option *o = option_at(*c, i_option);
            zsh_option(out, o, "--", o->name);
            if (o->short_name != NULL) {
                zsh_option(out, o, "-", o->short_name);
            }
        }
        fputs(" \\\n            '*:file:_files' ;;\n", out);
    }
    fputs("    help) _describe command commands ;;\n    esac\n}\n_caisson \"$@\"\n", out);
}

static void fish(FILE *out) {
    fputs(
        "# fish completion of caisson; made by: caisson completion fish\n"
        "complete -c caisson -n __fish_use_subcommand -a help -d 'Show the options of a command'\n",
        out);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        fprintf(out, "complete -c caisson -n __fish_use_subcommand -f -a %s -d '", (*c)->name);
        put_quoted(out, (*c)->summary);
        fputs("'\n", out);
        for (size_t i_option = 0; option_at(*c, i_option) != NULL; i_option++) {
            const cli_option *o = option_at(*c, i_option);
            fprintf(out, "complete -c caisson -n '__fish_seen_subcommand_from %s' -l %s",
                    (*c)->name, o->name);
            if (o->short_name != NULL) {
                fprintf(out, " -%s %s", strlen(o->short_name) == 1 ? "s" : "o", o->short_name);
            }
            if (o->kind == CLI_CHOICE) {
                fputs(" -x -a '", out);
                for (unsigned i = 0; o->choices(i) != NULL; i++) {
                    fprintf(out, "%s%s", i > 0 ? " " : "", o->choices(i));
                }
                fputs("'", out);
            } else if (o->kind == CLI_PATH) {
                fputs(" -r -F", out);
            } else if (o->kind != CLI_FLAG) {
                fputs(" -x", out);
            }
            fputs(" -d '", out);
            put_quoted(out, o->help);
            fputs("'\n", out);
        }
    }
}

bool cli_print_completion(const char *shell, FILE *out) {
    if (strcmp(shell, "bash") == 0) {
        bash(out);
    } else if (strcmp(shell, "zsh") == 0) {
        zsh(out);
    } else if (strcmp(shell, "fish") == 0) {
        fish(out);
    } else {
        return false;
    }
    return true;
}
