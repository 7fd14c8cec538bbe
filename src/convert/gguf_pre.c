/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/gguf_pre.h"

#include "format/warp/warp.h"

/* Patterns as the tokenizer.json of the original models has them; names for which we have no such
 * file stand with the row that llama.cpp cuts them by. */
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
static const char qwen35[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
                                          "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES;
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char bailing[] = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
                              "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char seed_coder[] = CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}"
                                              "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES;
static const char line_end[] = "[\r\n]";
/* The original's list of cased letters, of its time. */
static const char deepseek_llm_letters[] =
    "\\s?[A-Za-z"
    "\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}"
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
    "]+";
static const char deepseek_llm_marks[] =
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";
static const char deepseek_han[] = "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
static const char falcon_marks[] = "[\\p{P}\\$\\+<=>\\^~\\|`]+";

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static const csn_gguf_pre table[] = {
    {.names = LIST("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling",
                   "gigachat", "a.x-4.0", "mellum", "exaone4"),
     .byte_level_regex = true},
    {.names = LIST("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone",
                   "minerva-7b", "mellum2"),
     .digits = true,
     .byte_level_regex = true},
    {.names = LIST("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "pixtral",
                   "midm-2.0"),
     .splits = LIST(llama3),
     .ignore_merges = true,
     .add_bos = true},
    {.names = LIST("dbrx", "smaug-bpe", "glm4", "chatglm-bpe"), .splits = LIST(llama3)},
    {.names = LIST("qwen2"), .splits = LIST(qwen2), .nfc = true},
    {.names = LIST("deepseek-r1-qwen", "megrez", "kormo", "stablelm2", "hunyuan", "solar-open",
                   "grok-2"),
     .splits = LIST(qwen2)},
    {.names = LIST("qwen35"), .splits = LIST(qwen35)},
    {.names = LIST("gpt-4o"), .splits = LIST(gpt_4o), .ignore_merges = true},
    {.names = LIST("tekken"), .splits = LIST(tekken), .ignore_merges = true, .add_bos = true},
    {.names = LIST("falcon"), .splits = LIST(falcon_marks, gpt2, "[0-9][0-9][0-9]")},
    {.names = LIST("deepseek-coder"),
     .splits = LIST(line_end, "\\s?\\p{L}+", "\\s?\\p{P}+", deepseek_han, "\\p{N}")},
    {.names = LIST("deepseek-llm"),
     .splits = LIST(line_end, deepseek_llm_letters, deepseek_llm_marks, "\\s+$", deepseek_han,
                    "\\p{N}+")},
    {.names = LIST("deepseek-v3", "hunyuan-dense", "joyai-llm"),
     .splits = LIST(deepseek_digits, deepseek_cjk, deepseek_words)},
    {.names = LIST("kimi-k2"), .splits = LIST(csn_kimi_pattern), .ignore_merges = true},
    {.names = LIST("bailingmoe", "bailingmoe2", "llada-moe"), .splits = LIST(bailing)},
    {.names = LIST("seed-coder"), .splits = LIST(seed_coder)},
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
