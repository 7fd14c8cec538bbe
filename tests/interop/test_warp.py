#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers that we write, run by the existing WARP engine: the same greedy tokens.

    tests/interop/test_warp.py --peer DIR [--tool build/dev/caisson] [--tokens 24] [--work DIR]

DIR is a checkout of https://github.com/sqliteai/warp at v0.6.8, made with its own Makefile. Not part of
scripts/check. TAP on standard output; the last line is `N passed, N failed`.

For each family that WARP has and each coding: one of `caisson synth`, and one that `caisson convert`
made of the same model as .cmf with f32 weights. Prompt 3,7,11,5,200,42, f32 arithmetic, f32 cache.
A conversion of each family is killed on the way and resumed, and must be the same bytes.

Where tokens part, the leader there must be ahead by less than the two engines differ: 0.001, and with
VQ4P, whose int8 tables turn the last bit of a sum in front of them into a step, 0.7 (warp facts 10: 0.68 was
seen within one engine). What comes after is not compared. Each case says how far that engine's own two paths
go together (its SIMD, and WASTE_BACKEND=cpu).
"""
import argparse
import filecmp
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROMPT = ["3", "7", "11", "5", "200", "42"]
FAMILIES = ["kimi_linear", "kimi_k3", "deepseek_v3"]
QUANTS = ["vq3r", "vq2r", "vq4p"]


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--peer", required=True)
    p.add_argument("--tool", default=os.path.join(ROOT, "build/dev/caisson"))
    p.add_argument("--tokens", type=int, default=24)
    p.add_argument("--work")
    return p.parse_args()


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


class Run:
    def __init__(self, o, work):
        self.o, self.work, self.n, self.failed = o, work, 0, 0
        self.peer = os.path.join(work, "warp_greedy")
        src = os.path.join(o.peer, "src")
        subprocess.run(["cc", "-O2", "-o", self.peer, os.path.join(HERE, "warp_greedy.c"), "-I" + src,
                        os.path.join(o.peer, "libwaste.a"), "-lm", "-lpthread"], check=True)

    def tool(self, *args):
        return subprocess.run([self.o.tool, *args], check=True, capture_output=True, text=True).stdout

    def case(self, name, ok, why=""):
        self.n += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}{'' if ok else ': ' + why}", flush=True)

    def compare(self, name, model, tolerance):
        n = str(self.o.tokens)
        theirs, plain = (subprocess.run([self.peer, model, n, *PROMPT], check=True, capture_output=True, text=True,
                                        env={**os.environ, **e}).stdout.split() for e in ({}, {"WASTE_BACKEND": "cpu"}))
        text = self.tool("eval", model, "--tokens", ",".join(PROMPT), "-n", n, "--compute", "f32",
                         "--cache-type-k", "f32", "--cache-type-v", "f32")
        ours = text.split("generated:")[1].strip().split(",")
        theirs, leads = theirs[::2], [float(x) for x in theirs[1::2]]
        same = common(ours, theirs)
        note = f"{same} of {len(theirs)} tokens (its plain C and its SIMD {common(plain[::2], theirs)})"
        if same < len(theirs):
            note += f", then the leader is ahead by {leads[same]:.3g}"
        self.case(f"{name}: {note}", same == len(theirs) or leads[same] < tolerance,
                  "other tokens: " + " ".join(ours) + " / " + " ".join(theirs))


def same_directories(a, b):
    names = sorted(os.listdir(a))
    return names == sorted(os.listdir(b)) and filecmp.cmpfiles(a, b, names, shallow=False)[0] == names


def resumed(r, source, whole, quant):
    out = os.path.join(r.work, "killed.waste")
    args = [r.o.tool, "convert", source, "-o", out, "--expert-quant", quant]
    for delay in (0.2, 0.5, 1.0):
        p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        p.send_signal(signal.SIGKILL)
        p.wait()
        if os.path.exists(out):
            break
    if not os.path.exists(out):
        subprocess.run(args, check=True, capture_output=True)
    ok = same_directories(whole, out)
    shutil.rmtree(out)
    return ok


def main():
    o = parse()
    work = o.work or tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    r = Run(o, work)
    for family in FAMILIES:
        cmf = os.path.join(work, "m.cmf")
        r.tool("synth", "--family", family, "--seed", "5", "-q", "f32", "-f", "-o", cmf)
        for quant in QUANTS:
            tolerance = 0.7 if quant == "vq4p" else 1e-3
            synth = os.path.join(work, "s.waste")
            made = os.path.join(work, "c.waste")
            r.tool("synth", "--family", family, "--seed", "5", "-q", quant, "-f", "-o", synth)
            r.compare(f"{family} {quant} synth", synth, tolerance)
            r.tool("convert", cmf, "-o", made, "--expert-quant", quant, "--force")
            r.compare(f"{family} {quant} converted", made, tolerance)
            if quant == "vq3r":
                r.case(f"{family} {quant} resumed: the same bytes", resumed(r, cmf, made, quant))
    print(f"{r.n - r.failed} passed, {r.failed} failed")
    if o.work is None:
        shutil.rmtree(work)
    return r.failed != 0


sys.exit(main())
