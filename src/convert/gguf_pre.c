/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/gguf_pre.h"

/* Patterns as the tokenizer.json of the original models has them. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const char llama3[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                                          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
static const char qwen2[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
static const char gpt_4o[] = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?"
                             "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS "?"
                             "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
static const char tekken[] = "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+"
                             "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*"
                             "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
static const char deepseek_digits[] = "\\p{N}{1,3}";
static const char deepseek_cjk[] =
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f"
    "\xe3\x82\xa0-\xe3\x83\xbf]+"; /* U+4E00-9FA5 3040-309F 30A0-30FF */
static const char deepseek_words[] =
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static const csn_gguf_pre table[] = {
    {.names = LIST("gpt-2", "phi-2"), .byte_level_regex = true},
    {.names = LIST("smollm", "starcoder", "refact"), .digits = true, .byte_level_regex = true},
    {.names = LIST("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2"),
     .splits = LIST(llama3),
     .ignore_merges = true,
     .add_bos = true},
    {.names = LIST("dbrx", "smaug-bpe"), .splits = LIST(llama3)},
    {.names = LIST("qwen2"), .splits = LIST(qwen2), .nfc = true},
    {.names = LIST("deepseek-r1-qwen", "megrez"), .splits = LIST(qwen2)},
    {.names = LIST("gpt-4o"), .splits = LIST(gpt_4o), .ignore_merges = true},
    {.names = LIST("tekken"), .splits = LIST(tekken), .ignore_merges = true, .add_bos = true},
    {.names = LIST("deepseek-v3"), .splits = LIST(deepseek_digits, deepseek_cjk, deepseek_words)},
};

const csn_gguf_pre *csn_gguf_pre_find(csn_str name) {
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        for (size_t k = 0; table[i].names[k] != NULL; k++) {
            if (csn_str_is(name, table[i].names[k])) {
                return &table[i];
            }
        }
    }
    return NULL;
}
