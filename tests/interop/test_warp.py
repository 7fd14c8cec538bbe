#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers that we write, run by the existing WARP engine: the same greedy tokens.

    tests/interop/test_warp.py --peer DIR [--tool build/dev/caisson] [--only REGEX] [--work DIR]

DIR is a checkout of https://github.com/sqliteai/warp at v0.6.8, made with its own Makefile. Not part of
scripts/check; four minutes of two cores. TAP on standard output; the last line is `N passed, N failed`.

Products: its own kernels give the bits of tests/golden/quant/warp_*.bin, as ours do (tests/unit/quant, kernels).

Planted: for each family that WARP has and each coding, a checkpoint in which experts decide each token
(planted.py), converted by a process that is killed on the way and resumed: the same bytes as in one piece. From
three prompts that engine, by its SIMD and by its plain C (WASTE_BACKEND=cpu), and we, in f32 and int8, choose the
same 64 tokens. f32 leads of the first token over the second agree, and the least of them is larger than what
any two paths differ by. Then the container is damaged, with its checksums made right, and both
engines must notice it (`damage` below): by other tokens, or, of the books of later stages, by other leads.

Random: models of `synth`, VQ3R and VQ2R, 24 tokens. Of VQ4P, whose int8 tables turn the last bit of a sum in front of
them into a step, and whose leads are hundredths here, a comment says how far the two engines go together, and
that engine with itself.
"""
import argparse
import filecmp
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib

import planted

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROMPT = [3, 7, 11, 5, 200, 42]
FAMILIES = ["kimi_linear", "kimi_k3", "deepseek_v3"]
QUANTS = ["vq3r", "vq2r", "vq4p"]
# What the median of the leads of one container may differ by, and a damaged one must: sums in another order, and
# in VQ4P entries of tables that are rounded to the other side.
MEDIAN = {"vq3r": 1e-4, "vq2r": 1e-4, "vq4p": 0.005}
N = 64


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--peer", required=True)
    p.add_argument("--tool", default=os.path.join(ROOT, "build/dev/caisson"))
    p.add_argument("--only", default="")
    p.add_argument("--work")
    return p.parse_args()


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))


def apart(a, b):
    """How far the leads of two runs differ while their tokens are the same: (median, most)."""
    d = [abs(x - y) for x, y in list(zip(a[1], b[1]))[:common(a[0], b[0])]]
    return (statistics.median(d), max(d)) if d else (0, 0)


class Run:
    """Both engines; a run is (tokens, the lead of each over the next likeliest)."""

    def __init__(self, o, work):
        self.o, self.work, self.n, self.failed = o, work, 0, 0
        self.peer, self.products = (self.build(p) for p in ("warp_greedy", "warp_products"))

    def build(self, program):
        out, src = os.path.join(self.work, program), os.path.join(self.o.peer, "src")
        subprocess.run(["cc", "-O2", "-w", "-DVQ_SUPER=2", "-o", out, os.path.join(HERE, program + ".c"), "-I" + src,
                        os.path.join(self.o.peer, "libwaste.a"), "-lm", "-lpthread"], check=True)
        return out

    def case(self, name, ok, why=""):
        self.n += 1
        self.failed += not ok
        print(f"{'ok' if ok else 'not ok'} {self.n} - {name}{'' if ok else ': ' + why}", flush=True)

    def tool(self, *args):
        return subprocess.run([self.o.tool, *args], check=True, capture_output=True, text=True).stdout

    def ours(self, model, prompt, n=N, compute="f32"):
        d = json.loads(self.tool("eval", model, "--tokens", ",".join(map(str, prompt)), "-n", str(n), "--all", "--top",
                                 "2", "--compute", compute, "-ctk", "f32", "-ctv", "f32", "--json"))
        tops = [p["top"] for p in d["positions"][len(prompt) - 1:]]
        return d["generated"], [a["logit"] - b["logit"] for a, b in tops[:n]]

    def theirs(self, model, prompt, n=N, plain=False):
        out = subprocess.run([self.peer, model, str(n), *map(str, prompt)], check=True, capture_output=True, text=True,
                             env={**os.environ, **({"WASTE_BACKEND": "cpu"} if plain else {})}).stdout.split()
        return [int(x) for x in out[::2]], [float(x) for x in out[1::2]]


def products(r):
    files = [os.path.join(ROOT, "tests/golden/quant", f"warp_{q}.bin") for q in QUANTS]
    out = subprocess.run([r.products, *files], check=True, capture_output=True, text=True).stdout
    for quant, line in zip(QUANTS, out.splitlines()):
        n, simd, plain = map(int, line.split())
        r.case(f"products {quant}: its SIMD gives the bits of {simd} of {n} (its plain C of {plain})", simd == n)


def same_directories(a, b):
    names = sorted(os.listdir(a))
    return names == sorted(os.listdir(b)) and filecmp.cmpfiles(a, b, names, shallow=False)[0] == names


def convert_with_a_kill(r, args, out):
    """-> why it was not what is meant, or "": killed behind the first whole bank, whose file the second run keeps."""
    first, second = (os.path.join(out + ".part", f"experts-L{i}.bin") for i in (1, 2))
    p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while p.poll() is None and not os.path.exists(second):
        time.sleep(0.001)
    p.send_signal(signal.SIGKILL)
    p.wait()
    if os.path.exists(out) or not os.path.exists(second):
        return "it was not killed on the way"
    kept = os.stat(first)
    subprocess.run(args, check=True, capture_output=True)
    now = os.stat(os.path.join(out, "experts-L1.bin"))
    return "" if (now.st_ino, now.st_mtime_ns) == (kept.st_ino, kept.st_mtime_ns) else "the first bank was made again"


class Container:
    """A directory whose parts are damaged, each with a checksum that is right."""

    def __init__(self, path):
        with open(os.path.join(path, "manifest.json")) as f:
            self.manifest = json.load(f)
        self.path, quant = path, self.manifest["expert_quant"]
        self.stages, self.book_bytes = quant["stages"], quant["entries"] * 16
        self.layers = sorted(map(int, self.manifest["layers"]))
        self.kept = {}

    def load(self, name):
        with open(os.path.join(self.path, name), "rb") as f:
            self.kept[name] = f.read()
        return bytearray(self.kept[name])

    def store(self, name, data):
        with open(os.path.join(self.path, name), "wb") as f:
            f.write(data)

    def restore(self):
        for name, data in self.kept.items():
            self.store(name, data)
        self.kept = {}

    def indices(self, layer, expert):
        """The indices of a record's three matrices, each in reverse."""
        bank = self.manifest["layers"][str(layer)]
        data, stride = self.load(bank["file"]), bank["bytes"] // bank["experts"]
        record = data[expert * stride:(expert + 1) * stride]
        offsets = struct.unpack("<4I", record[20:36])
        scales = 2 * self.n_rows()
        assert zlib.crc32(record[48:offsets[3] + scales]) == struct.unpack("<I", record[36:40])[0]
        for a, b in zip(offsets, offsets[1:]):
            record[a:b] = record[a:b][::-1]
        record[36:40] = struct.pack("<I", zlib.crc32(record[48:offsets[3] + scales]))
        data[expert * stride:(expert + 1) * stride] = record
        self.store(bank["file"], data)

    def n_rows(self):
        c = self.manifest["config"]
        return 2 * c["moe_intermediate_size"] + (c.get("routed_expert_hidden_size") or c["hidden_size"])

    def exchange(self, layer, a, b):
        """Two experts' records, each under the other's id."""
        bank = self.manifest["layers"][str(layer)]
        data, stride = self.load(bank["file"]), bank["bytes"] // bank["experts"]
        x, y = (data[e * stride:(e + 1) * stride] for e in (a, b))
        x[6:8], y[6:8] = y[6:8], x[6:8]
        data[a * stride:(a + 1) * stride], data[b * stride:(b + 1) * stride] = y, x
        self.store(bank["file"], data)

    def books(self, layers, kind, stage):
        """The entries of one stage's book of gate, up or down, each moved to the index before."""
        data = self.load("codebooks.bin")
        for layer in layers:
            book = self.manifest["layers"][str(layer)]["codebook_base"] + kind * self.stages + stage
            at = book * (16 + self.book_bytes) + 16
            data[at:at + self.book_bytes] = data[at + 16:at + self.book_bytes] + data[at:at + 16]
        self.store("codebooks.bin", data)


def damage(r, name, model, quant, prompt, whole):
    """whole: the runs of both engines before."""
    c = Container(model)

    def noticed(what, by_tokens, act, *args):
        act(*args)
        runs = r.theirs(model, prompt), r.ours(model, prompt)
        c.restore()
        for who, run, before in zip(("it", "we"), runs, whole):
            at, median = common(before[0], run[0]), apart(before, run)[0]
            if at == N and (by_tokens or median < 4 * MEDIAN[quant]):
                missed.append(f"{what}: {who} saw nothing")

    missed, n = [], len(c.layers)
    for layer in c.layers:
        noticed(f"indices of expert {layer} of layer {layer}", True, c.indices, layer, layer)
        noticed(f"experts 1 and 12 of layer {layer}", True, c.exchange, layer, 1, 12)
        for kind in range(3):
            noticed(f"book of kind {kind} of layer {layer}", True, c.books, [layer], kind, 0)
    for kind in range(3):
        for stage in range(1, c.stages):
            noticed(f"books of kind {kind}, stage {stage}", False, c.books, c.layers, kind, stage)
    r.case(f"{name}: damage to {n} records, {n} pairs, {3 * n} books changes tokens, to {3 * (c.stages - 1)} later stages leads",
           not missed, "; ".join(missed))


def planted_case(r, family, source, live, quant):
    name = f"{family} {quant} planted"
    whole, made = os.path.join(r.work, "whole.waste"), os.path.join(r.work, "made.waste")
    args = [r.o.tool, "convert", source, "--expert-quant", quant, "-o"]
    why = convert_with_a_kill(r, [*args, made], made)
    subprocess.run([*args, whole], check=True, capture_output=True)
    if why == "" and not same_directories(whole, made):
        why = "other bytes than in one piece"
    r.case(f"{name}: killed and resumed, the same bytes", why == "", why)

    parted, least, most, medians, way, whole_runs = [], 1e30, 0, 0, 0, []
    prompts = [[*PROMPT, live[0]], [live[20], live[9], live[30]], [*range(300, 340), live[40]]]
    for prompt in prompts:
        first, f32 = r.theirs(made, prompt), r.ours(made, prompt)
        whole_runs.append((first, f32))
        way += common(first[0], [live[(live.index(prompt[-1]) + 1 + i) % len(live)] for i in range(N)])
        for who, run in (("its plain C", r.theirs(made, prompt, plain=True)), ("ours in f32", f32)):
            at, (median, widest) = common(first[0], run[0]), apart(first, run)
            least, most, medians = min(least, *run[1], *first[1]), max(most, widest), max(medians, median)
            if at < N:
                parted.append(f"{who} behind {at}")
        at = common(first[0], r.ours(made, prompt, compute="int8")[0])
        if at < N:
            parted.append(f"ours in int8 behind {at}")
    n = N * len(prompts)
    r.case(f"{name}: the same {n} tokens by its SIMD and plain C, ours in f32 and int8 ({way} as planted); least lead "
           f"{least:.3g}, f32 leads differ by {most:.2g} at most, {medians:.2g} in the median",
           not parted and way == n and least > 4 * most and medians <= MEDIAN[quant], "; ".join(parted))
    damage(r, name, made, quant, prompts[0], whole_runs[0])
    shutil.rmtree(whole)
    shutil.rmtree(made)


def random_case(r, family, quant):
    model = os.path.join(r.work, "random.waste")
    r.tool("synth", "--family", family, "--seed", "5", "-q", quant, "-f", "-o", model)
    theirs, plain = r.theirs(model, PROMPT, 24), r.theirs(model, PROMPT, 24, plain=True)
    ours = r.ours(model, PROMPT, 24)
    same = common(theirs[0], ours[0])
    text = f"{family} {quant} random: {same} of 24 tokens (its plain C and its SIMD {common(theirs[0], plain[0])})"
    if quant == "vq4p":
        print(f"# {text}; least lead of its SIMD {min(theirs[1]):.2g}")
    else:
        r.case(text, same == 24, f"{theirs[0]} / {ours[0]}")
    shutil.rmtree(model)


def main():
    o = parse()
    work = o.work or tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    r = Run(o, work)
    products(r)
    for family in FAMILIES:
        cmf, source = os.path.join(work, "m.cmf"), os.path.join(work, "source")
        r.tool("synth", "--family", family, "--seed", "5", "-q", "f32", "-f", "-o", cmf)
        r.tool("export", cmf, "-o", source)
        live = planted.plant(source, seed=1)
        for quant in QUANTS:
            if re.search(o.only, f"{family} {quant}"):
                planted_case(r, family, source, live, quant)
                random_case(r, family, quant)
        shutil.rmtree(source)
    print(f"{r.n - r.failed} passed, {r.failed} failed")
    if o.work is None:
        shutil.rmtree(work)
    return r.failed != 0


sys.exit(main())
