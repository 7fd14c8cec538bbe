/* SPDX-License-Identifier: Apache-2.0 */
/* skill: what its actions are, and `list`; skill_route.c chooses among skills, skill_edit.c changes
 * files. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "open.h"
#include "skills.h"
#include "term.h"

enum { MAX_TOP = 1000 };

static void print_skill(const csn_jval *skill) {
    cli_put(csn_jval_text_of(skill, "id"));
    csn_str name = csn_jval_text_of(skill, "name");
    if (name.len > 0) {
        fputs("  ", stdout);
        cli_put(name);
    }
    printf("  %" PRIu64 " tensors, %.1f MB, layers", csn_jval_number_of(skill, "tensors"),
           (double)csn_jval_number_of(skill, "bytes") * 1e-6);
    const csn_jval *layers = csn_jval_get(skill, "layers");
    for (csn_jiter it = csn_jval_iter(layers); csn_jiter_next(&it);) {
        uint64_t i = 0;
        (void)csn_jval_u64(it.value, &i);
        printf("%s%" PRIu64, it.index == 0 ? " " : ",", i);
    }
    const csn_jval *selection = csn_jval_get(skill, "selection");
    if (csn_jval_kind(selection) == CSN_JSON_OBJECT) {
        printf("%s, routed by rank %" PRIu64 " behind layer %" PRIu64,
               csn_jval_len(layers) == 0 ? " not told" : "", csn_jval_number_of(selection, "rank"),
               csn_jval_number_of(selection, "phi_layer"));
    }
    csn_str task = csn_jval_text_of(skill, "input_mask_task");
    if (task.len > 0) {
        fputs(", mask ", stdout);
        cli_put(task);
    }
    const csn_jval *quality = csn_jval_get(skill, "quality");
    double base = 0;
    double own = 0;
    if (csn_jval_f64(csn_jval_get(quality, "backbone"), &base) &&
        csn_jval_f64(csn_jval_get(quality, "overlaid"), &own)) {
        fputs(", ", stdout);
        cli_put(csn_jval_text_of(quality, "metric"));
        printf(" %.4g (base %.4g)", own, base);
    } else {
        fputs(", quality not measured", stdout);
    }
    putchar('\n');
}

static int print_skills(const cli_args *args, const csn_jval *root, const char *id) {
    (void)id;
    const csn_jval *skills = csn_jval_get(root, "skills");
    if (cli_has(args, "json")) {
        return cli_put_jval(args, skills);
    }
    if (csn_jval_len(skills) == 0) {
        puts("no skills");
    }
    for (csn_jiter it = csn_jval_iter(skills); csn_jiter_next(&it);) {
        print_skill(it.value);
    }
    return CLI_OK;
}

static int list(const cli_args *args, const char *path, const char *id) {
    return cli_describe(args, path, print_skills, id);
}

static const struct {
    const char *name;
    bool takes_id;
    int (*run)(const cli_args *args, const char *path, const char *id);
} actions[] = {
    {"list", false, list},
    {"route", false, cli_skill_route},
    {"explain", false, cli_skill_explain},
    {"add", true, cli_skill_add},
    {"remove", true, cli_skill_remove},
    {"quality", true, cli_skill_quality},
    {"export", true, cli_skill_export},
    {"apply", true, cli_skill_apply},
};

static int run(const cli_args *args) {
    const char *third = args->n_positional > 2 ? args->positional[2] : NULL;
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(args->positional[0], actions[i].name) != 0) {
            continue;
        }
        if (third != NULL && (!actions[i].takes_id || cli_has(args, "id"))) {
            return cli_usage_error(args->command, "unexpected argument \"%s\"", third);
        }
        return actions[i].run(args, args->positional[1], cli_text(args, "id", third));
    }
    return cli_usage_error(
        args->command, "what to do: list, route, explain, add, remove, quality, export or apply");
}

static const char *tensors_choice(unsigned i) {
    static const char *const words[] = {"all", "ffn", "attn", NULL};
    return words[i];
}

static const cli_option options[] = {
    {.name = "prompt",
     .short_name = "p",
     .kind = CLI_TEXT,
     .value = "TEXT",
     .help = "route, explain: the prompt, as it is (no chat template)"},
    {.name = "top",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = MAX_TOP,
     .help = "explain: so many of the likeliest first tokens",
     .by_default = "8"},
    {.name = "id",
     .kind = CLI_TEXT,
     .value = "ID",
     .help = "add: the new skill's id (A-Z a-z 0-9 _ -)"},
    {.name = "from",
     .kind = CLI_PATH,
     .value = "DONOR",
     .help = "add: a fine-tuned copy of the base: a .cmf, a GGUF file or a Hugging Face directory"},
    {.name = "name", .kind = CLI_TEXT, .value = "TEXT", .help = "add: a name for people"},
    {.name = "description", .kind = CLI_TEXT, .value = "TEXT", .help = "add: what it is for"},
    {.name = "mask",
     .kind = CLI_TEXT,
     .value = "NAME",
     .help = "add: the task mask that is active with the skill"},
    {.name = "prompts",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "add: prompts of its kind, one a line, so that it can be routed to"},
    {.name = "rank",
     .kind = CLI_INT,
     .value = "N",
     .min = 1,
     .max = 8,
     .help = "add: directions in which its prompts may differ",
     .by_default = "2"},
    {.name = "phi-layer",
     .kind = CLI_INT,
     .value = "N",
     .min = 0,
     .max = INT32_MAX,
     .help = "add: the layer behind which prompts are described, from 0 on",
     .by_default = "that at two thirds of the depth"},
    {.name = "holdout",
     .kind = CLI_INT,
     .value = "N",
     .min = 0,
     .max = 1 << 20,
     .help = "add: keep every N-th prompt out of the fit and in the file, which then tells what is "
             "new to all its skills; 0 = none",
     .by_default = "5"},
    {.name = "layers",
     .kind = CLI_TEXT,
     .value = "LIST",
     .help = "add: layers whose tensors the skill may replace, as 0,4-7",
     .by_default = "all, and what lies outside of layers"},
    {.name = "tensors",
     .kind = CLI_CHOICE,
     .value = "WHICH",
     .choices = tensors_choice,
     .help = "add: which tensors the skill may replace",
     .by_default = "all"},
    {.name = "quant",
     .kind = CLI_CHOICE,
     .value = "TYPE",
     .choices = cli_quant_choice,
     .help = "add: type of its matrices",
     .by_default = "each in the base's"},
    {.name = "min-delta",
     .kind = CLI_REAL,
     .value = "X",
     .min = 0,
     .max = 1000,
     .help = "add: leave out tensors with ||donor - base|| / ||base|| below X",
     .by_default = "0: what is not equal"},
    {.name = "output",
     .short_name = "o",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "export, apply: the file to write"},
    {.name = "base",
     .kind = CLI_PATH,
     .value = "BASE",
     .help = "export: the model that the skill is for",
     .by_default = "FILE itself"},
    {.name = "overwrite", .kind = CLI_FLAG, .help = "export, apply: replace an existing file"},
    {.name = "force",
     .kind = CLI_FLAG,
     .help = "apply: on another base than the skill was cut from; noted in the result"},
    {.name = "text",
     .kind = CLI_PATH,
     .value = "FILE",
     .help = "quality: held-out text on which base and skill are measured"},
    {0},
};

const cli_command cli_cmd_skill = {
    .name = "skill",
    .summary = "The skills of a .cmf file: show, route to, add, measure, cut out, remove",
    .positionals = "list|route|explain|add|remove|quality|export|apply FILE [ID|SKILL]",
    .min_args = 2,
    .max_args = 3,
    .groups = {options, cli_blend_options, CLI_MODEL_GROUPS, cli_json_options, cli_common_options},
    .details =
        "A skill is a set of tensors in the file of a base model that stand in for the base's. "
        "list shows which a file has. route tells for each skill that describes its prompts how "
        "far the given one is from them (E, from the base's hidden state in f32 arithmetic; the "
        "smallest distance wins). explain also shows the likeliest first tokens of the answer by "
        "the winner, or by what --skill or --blend says. add compares a fine-tuned copy of the "
        "base with it and appends the tensors that differ; quality measures perplexity with and "
        "without "
        "a skill on a held-out text and notes it in the file; remove takes a skill out of the "
        "lists (its bytes stay until the file is compacted). The file grows behind its end: a "
        "program that has it open keeps the model that it opened.\n"
        "export writes a skill as a small file that is bound to the bytes of its base: skill ID of "
        "FILE, or, if FILE has none of that name, what differs between FILE and --base. apply lays "
        "such a file over its base and gives the model that it was cut from; another base is "
        "refused unless --force is given.",
    .examples = "caisson skill list model.cmf\n"
                "caisson skill add model.cmf --id sql --from sql-finetune/ --prompts sql.txt\n"
                "caisson skill quality model.cmf sql --text held-out.txt\n"
                "caisson skill export tuned.cmf sql --base model.cmf -o sql.cmf\n"
                "caisson skill apply model.cmf sql.cmf -o again.cmf\n"
                "caisson skill route model.cmf -p \"SELECT name FROM\" --json\n"
                "caisson run model.cmf --skill auto \"Which customers bought nothing?\"",
    .run = run,
};
