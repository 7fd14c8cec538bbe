#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits of a large model, compared byte for byte however it is run.

    bench/same_bits.py MODEL [--tool build/release/caisson] [--prompt 8] [--decode 3]
                       [--compute f32,int8]

MODEL: a .waste, or a .cmf with experts. Budgets from the floor of --stream-trunk over the floor and
half-way to all resident; every way of reading, lookahead on and off, the prompt at once and token by
token, each with each; threads 1 to 4 in turn. All logits of the prompt and of the tokens that follow
are compared with those of a run with everything in memory on one thread. A line a run that differs;
the last line is `N runs, N differ`, and the exit code 1 if any does.
"""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--tool", default=os.path.join(ROOT, "build", "release", "caisson"))
    p.add_argument("--prompt", type=int, default=8)
    p.add_argument("--decode", type=int, default=3)
    p.add_argument("--compute", default="f32,int8")
    return p.parse_args()


def plan(o, ctx, *args):
    out = subprocess.run([o.tool, "plan", o.model, "-c", ctx, "--json", "--no-probe", *args],
                         check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)


def budgets(o, ctx):
    whole, streamed = plan(o, ctx), plan(o, ctx, "--stream-trunk")
    floor, resident, least = whole["floor_bytes"], whole["resident_bytes"], streamed["floor_bytes"]
    return [(least, ["--stream-trunk"]), ((least + floor) // 2, ["--stream-trunk"]), (floor, []),
            ((floor + resident) // 2, []), (resident, [])]


def logits(o, npy, args):
    subprocess.run([o.tool, "eval", o.model, *args, "--all", "--npy", npy], check=True,
                   stdout=subprocess.DEVNULL)
    with open(npy, "rb") as f:
        return f.read()


def main():
    o = parse()
    ctx = str(o.prompt + o.decode)
    ids = ",".join(str(7 + 13 * i % 200) for i in range(o.prompt))
    n = n_differ = 0
    with tempfile.TemporaryDirectory() as work:
        npy = os.path.join(work, "logits.npy")
        sizes = budgets(o, ctx)
        for compute in o.compute.split(","):
            base = ["--tokens", ids, "-n", str(o.decode), "-c", ctx, "--compute", compute]
            want = logits(o, npy, [*base, "-t", "1", "--budget", str(sizes[-1][0])])
            ways = itertools.product(sizes, ("uring", "threads", "buffered"),
                                     ([], ["--no-lookahead"]), ("512", "1"))
            for (budget, trunk), io, ahead, cut in ways:
                args = ["-t", str(1 + n % 4), "--budget", str(budget), *trunk, "--io", io, *ahead,
                        "-ub", cut]
                n += 1
                if logits(o, npy, [*base, *args]) != want:
                    n_differ += 1
                    print("differs:", compute, *args, flush=True)
    print(f"{n} runs, {n_differ} differ")
    sys.exit(n_differ > 0)


if __name__ == "__main__":
    main()
