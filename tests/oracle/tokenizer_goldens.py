#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer/: small trained tokenizers (<name>.json) and what the tokenizers
package 0.23.3 makes of a list of texts (<name>.cases.json): [text, ids, decoded, decoded without
special tokens], encoded with the post-processor; null = as the one before it.
Usage: tokenizer_goldens.py tests/golden/tokenizer [NAME...]
"""
import json
import os
import sys

from tokenizers import Tokenizer, __version__

import tokenizer_texts
import tokenizer_trained


def main(folder, *names):
    assert __version__ == "0.23.3", __version__
    os.makedirs(folder, exist_ok=True)
    for path in tokenizer_trained.write_all(folder, names):
        tok = Tokenizer.from_file(path)
        added = [a["content"] for a in json.load(open(path))["added_tokens"]]
        added = [a for a in added if not a.startswith("<0x")]
        cases = []
        for text in tokenizer_texts.texts(230, added, with_long=False):
            text = text[:90]
            ids = tok.encode(text).ids
            whole = tok.decode(ids, skip_special_tokens=False)
            skip = tok.decode(ids, skip_special_tokens=True)
            cases.append([text, ids, None if whole == text else whole,
                          None if skip == whole else skip])
        with open(path[:-5] + ".cases.json", "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), ensure_ascii=False)
                                       for c in cases) + "\n]\n")


main(*sys.argv[1:])
