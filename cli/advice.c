/* SPDX-License-Identifier: Apache-2.0 */
#include "advice.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "term.h"

/* Of a skill file that is laid over a model which it was not cut from. */
static bool is_of_another_base(const cli_args *args, const caisson_error *err) {
    return strcmp(err->section, "envelope") == 0 && cli_knows(args, "base");
}

static bool begins_with(const char *path, csn_str magic) {
    char head[64];
    caisson_error ignored; /* of advice */
    csn_file *f;
    if (csn_fs_open(csn_fs_os(), path, CSN_OPEN_READ, &f, &ignored) != CAISSON_OK) {
        return false;
    }
    bool is_read = magic.len <= sizeof(head) &&
                   csn_file_read_at(f, 0, head, magic.len, &ignored) == CAISSON_OK;
    csn_file_close(f);
    return is_read && memcmp(head, magic.ptr, magic.len) == 0;
}

static const char *damaged(const cli_args *args, const caisson_error *err) {
    if (is_of_another_base(args, err)) {
        return "Apply it to the base that it was cut from; --force takes this one all the same, "
               "and notes it in the result.";
    }
    bool is_source = csn_str_ends(csn_str_from(err->file), CSN_STR(".safetensors")) ||
                     begins_with(err->file, CSN_STR("GGUF"));
    return is_source ? "The file is damaged or incomplete: get it again."
                     : "The file is damaged or incomplete: copy or convert it again; caisson "
                       "verify FILE lists every fault.";
}

static const char *exists(const cli_args *args, const caisson_error *err) {
    if (!cli_knows(args, "overwrite")) {
        return cli_knows(args, "force") && !cli_has(args, "force")
                   ? "Give another name, or --force to replace it."
                   : "Give another name.";
    }
    return err->tensor[0] == '\0' ? "Give another name, or --overwrite to replace it."
                                  : "Give another id, or caisson skill remove the old one.";
}

/* A mask or a skill that is not there; where the file has others, the error lists them. */
static const char *missing(const caisson_error *err) {
    if (err->want[0] != '\0') {
        return NULL;
    }
    return strcmp(err->section, "masks") == 0 ? "caisson masks make FILE NAME --text TEXT adds one."
           : strcmp(err->section, "header") == 0
               ? "caisson skill list FILE shows which skills there are."
               : NULL;
}

static const char *budget(const cli_args *args) {
    return cli_has(args, "stream-trunk")
               ? "Give --budget at least the first number; caisson plan shows what it is made of."
               : "Give --budget at least the first number (caisson plan shows what it is made of), "
                 "or --stream-trunk, which needs less.";
}

static const char *memory(const cli_args *args) {
    return cli_has(args, "stream-trunk")
               ? "A smaller --budget or -c takes less; caisson plan shows how much."
               : "A smaller --budget or -c takes less, --stream-trunk least; caisson plan shows "
                 "how much.";
}

/* A directory that looks like a model, and is of a form that is not read. */
static const char *other_form(const char *dir) {
    static const struct {
        const char *name, *advice;
    } forms[] = {
        {"adapter_config.json", "That is a LoRA adapter, not a model: merge it into its base first "
                                "(peft: merge_and_unload) and convert what that gives."},
        {"pytorch_model.bin", "Its weights are in PyTorch's own form: save the model as "
                              "safetensors first (transformers: save_pretrained)."},
        {"pytorch_model.bin.index.json", "Its weights are in PyTorch's own form: save the model as "
                                         "safetensors first (transformers: save_pretrained)."},
        {"params.json", "That is a release's own form: get the one for transformers, with "
                        "config.json and model.safetensors."},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", dir, forms[i].name);
        if (csn_fs_os()->ops->exists(csn_fs_os(), path)) {
            return forms[i].advice;
        }
    }
    return NULL;
}

static bool names_file(const char *path) {
    static const char *const endings[] = {".cmf", ".gguf", ".waste", ".safetensors", ".json"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        if (csn_str_ends(csn_str_from(path), csn_str_from(endings[i]))) {
            return true;
        }
    }
    return false;
}

/* A model's name that is meant for a program which fetches models: a URL, or OWNER/NAME. */
static const char *not_local(const cli_args *args, const char *path) {
    const char *slash = strchr(path, '/');
    char owner[256];
    if (args->n_positional == 0 || strcmp(args->positional[0], path) != 0) {
        return NULL; /* another file that the command was given */
    }
    if (strstr(path, "://") != NULL) {
        return "Models are files of this machine: download it first.";
    }
    if (slash == NULL || strchr("./~", *path) != NULL || strchr(slash + 1, '/') != NULL ||
        names_file(path)) {
        return NULL;
    }
    snprintf(owner, sizeof(owner), "%.*s", (int)(slash - path), path);
    return csn_fs_os()->ops->exists(csn_fs_os(), owner)
               ? NULL
               : "Models are files of this machine. One of Hugging Face: hf download OWNER/NAME "
                 "--local-dir DIR, then caisson convert DIR -o MODEL.cmf.";
}

static const char *advice(const cli_args *args, const caisson_error *err) {
    if (begins_with(err->file, CSN_STR("version https://git-lfs.github.com/"))) {
        return "That is Git LFS's pointer to the file, not the file: git lfs pull gets it.";
    }
    if (strcmp(err->tensor, "shard") == 0) {
        return "All shards of a model lie in one folder, each under the name that it was made "
               "with: put it there, give it its name back, or get it again.";
    }
    switch (err->code) {
    case CAISSON_E_TEMPLATE:
        return cli_knows(args, "raw") ? "With --raw the prompt goes without the chat template."
                                      : NULL;
    case CAISSON_E_UNSUPPORTED:
        if (strcmp(err->section, "envelope") == 0) { /* CMF 9.1 */
            return "caisson skill apply BASE SKILL.cmf -o OUT.cmf lays it over its base: that is a "
                   "model.";
        }
        return cli_knows(args, "threads") && !cli_knows(args, "output")
                   ? "caisson info FILE shows what is in the file and why it does not run."
                   : NULL;
    case CAISSON_E_HASH:
    case CAISSON_E_BOUNDS: return damaged(args, err);
    case CAISSON_E_MAGIC:
        return strcmp(args->command->name, "convert") == 0
                   ? other_form(err->file)
                   : "This is not a .cmf file; caisson convert makes one.";
    case CAISSON_E_MISSING: return missing(err);
    case CAISSON_E_LIMIT:
        return strcmp(err->section, "budget") == 0   ? budget(args)
               : strcmp(err->section, "memory") == 0 ? memory(args)
                                                     : NULL;
    case CAISSON_E_IO:
        return err->sys_errno == EISDIR   ? "That is a directory; this command wants a .cmf file, "
                                            "which caisson convert makes of it."
               : err->sys_errno == ENOENT ? not_local(args, err->file)
                                          : other_form(err->file);
    case CAISSON_E_VERSION:
    case CAISSON_E_FEATURE: return "The file was made for a newer reader.";
    case CAISSON_E_CONTEXT: return "Give a larger context with -c N, or a shorter text.";
    case CAISSON_E_EXISTS: return exists(args, err);
    case CAISSON_E_BUSY: return "Wait until it has finished, stop it, or give another name.";
    case CAISSON_E_SIGNATURE:
        return "Do not trust this file: get it again, with its .sig, from who signed it.";
    case CAISSON_E_NOMEM: return "Try a smaller context (-c), or --cache-type-k q8_0.";
    default: return NULL;
    }
}

/* ---- "s.cmf" was asked for, and there is "s-00001-of-00003.cmf" ---- */

typedef struct search {
    csn_str base; /* "s" */
    char found[256];
} search;

static void look_at(void *ctx, csn_str name) {
    static const char end[] = "-00001-of-00000.cmf";
    search *s = ctx;
    csn_str rest = csn_str_make(name.ptr + s->base.len, name.len - s->base.len);
    if (csn_str_starts(name, s->base) && rest.len == sizeof(end) - 1 &&
        csn_str_starts(rest, CSN_STR("-00001-of-")) && csn_str_ends(rest, CSN_STR(".cmf"))) {
        snprintf(s->found, sizeof(s->found), "%.*s", CSN_STR_ARGS(name));
    }
}

static void advise_shards(const char *path) {
    const char *slash = strrchr(path, '/');
    csn_str name = csn_str_from(slash != NULL ? slash + 1 : path);
    char dir[256] = ".";
    caisson_error ignored; /* of advice */
    if (!csn_str_ends(name, CSN_STR(".cmf"))) {
        return;
    }
    search s = {.base = csn_str_make(name.ptr, name.len - 4)};
    if (slash != NULL) {
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path + 1), path);
    }
    (void)csn_fs_os()->ops->list(csn_fs_os(), dir, look_at, &s, &ignored);
    if (s.found[0] != '\0') {
        fputs("The model is there in shards: give the name of one of them, such as ", stderr);
        cli_put_printable(stderr, path, slash != NULL ? (size_t)(slash - path + 1) : 0);
        cli_put_printable(stderr, s.found, strlen(s.found));
        fputs(".\n", stderr);
    }
}

void cli_advise(const cli_args *args, const caisson_error *err) {
    const char *line = advice(args, err);
    if (line != NULL) {
        fprintf(stderr, "%s\n", line);
    } else if (err->code == CAISSON_E_IO && err->sys_errno == ENOENT) {
        advise_shards(err->file);
    }
}
