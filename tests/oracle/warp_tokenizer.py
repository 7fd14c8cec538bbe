#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/format/warp_ranks.model, a rank file full of runs and overlaps, and
warp_tokenizer.json: what tiktoken 0.14.0 with Kimi's pattern makes of a list of texts, for that file
and for the one of tests/golden/warp/vq3r-tok.waste: [text, ids with special tokens as text, ids with
special tokens].
Usage: warp_tokenizer.py tests/golden
"""
import base64
import json
import random
import sys

import tiktoken

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join([
    r"[\p{Han}]+",
    BEFORE + UPPER + "*" + LOWER + "+" + CONTRACTION,
    BEFORE + UPPER + "+" + LOWER + "*" + CONTRACTION,
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+",
])
RUNS = ["aa", "--", "ab", "aaa", "  ", "aba", "---", "----", "bb", "aab", "abab", "baa", "\n\n", "-----",
        " the", "th", " t", "the", "\n\n\n", "你好", "好你"]


def read_ranks(path):
    with open(path, "rb") as f:
        pairs = [line.split() for line in f.read().splitlines() if line]
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def make_texts(n):
    rng = random.Random(7)
    words = ["a", "aa", "b", "ab", "-", "--", " ", "  ", "\n", "\r\n", "\t", "A", "Zed", "'s", "'LL", "é",
             "e\u0301", "ß", "你", "好", "7", "42", "2024", "ſ", "😀", "_", "=", " the", "the", "City",
             "日本", "かな", "한국", "<|sep|>", "<|open|>", "[BOS]", "<|", "|>", "x", "\u200d", "!", ","]
    texts = ["", "hello world 1234", "HelloWorld's DON'T iPhone15 élan", "汉字abc中文English混合",
             " " * 50 + "a" + "-" * 301, "\n" * 300, "好" * 86, "a" * 77, "ab" * 40]
    texts += ["".join(rng.choice(words) for _ in range(rng.randint(1, 24))) for _ in range(n)]
    for letters in ("a-", "ab", "- ", "a ", "\n ", "好你", "aA"):
        texts += ["".join(rng.choice(letters) for _ in range(rng.randint(2, 60))) for _ in range(12)]
    return texts


def cases(model, specials):
    encoding = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=read_ranks(model),
                                 special_tokens=specials)
    return [[text, encoding.encode(text, allowed_special=set(), disallowed_special=()),
             encoding.encode(text, allowed_special="all")] for text in make_texts(150)]


def main(golden):
    assert tiktoken.__version__ == "0.14.0", tiktoken.__version__
    runs = golden + "/format/warp_ranks.model"
    with open(runs, "wb") as f:
        for rank, token in enumerate([bytes([b]) for b in range(256)] + [s.encode() for s in RUNS]):
            f.write(base64.b64encode(token) + b" %d\n" % rank)
    container = golden + "/warp/vq3r-tok.waste/"
    with open(container + "specials.json") as f:
        specials = {s["text"]: s["id"] for s in json.load(f)}
    result = {"vq3r-tok": cases(container + "tokenizer.model", specials), "runs": cases(runs, specials)}
    with open(golden + "/format/warp_tokenizer.json", "w") as f:
        json.dump(result, f, separators=(",", ":"), ensure_ascii=False)


main(*sys.argv[1:])
