#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tool, the Python reader and the format's published reference on each other's files.

    tests/interop/test_reference.py [--build] [--reference CORTIQ] [--tool build/dev/caisson]
                                    [--model SMOLLM2.gguf] [--work DIR]

  --build       cargo installs the reference (cortiq-cli, pinned) into --work
  --reference   the program `cortiq` (default: WORK/cortiq/bin/cortiq, else the one on PATH)
  --model       a real model as GGUF: greedy answers and one file of each type are compared too
  --work        scratch folder (build/interop)

Needs numpy. Not part of scripts/check: it needs a Rust compiler and the network once. TAP on
standard output; the last line is `N passed, N failed`.

For each type that both know: verify is green on all sides, tensor lists agree, decoded values agree
to the bit (reference `dequant`, tool `tensor --npy`, Python reader), and how many payloads the two
encoders write alike. Beside that signatures, expert masks, skills and skill files, and
with --model greedy answers in f32 arithmetic.
"""
import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OPTIONS, sys.argv = sys.argv[1:], sys.argv[:1]
for folder in ("tests/cli", "tests/python"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import numpy as np  # noqa: E402
import support  # noqa: E402
from test_convert import make_hf  # noqa: E402
from test_skill import Tuned, fine_tune  # noqa: E402
from caisson_cmf import DTYPES, Model, verify  # noqa: E402

VERSION = "0.5.100"  # of cortiq-cli: the one that the description of the format was checked with
# Reference's --quant name -> ours, or None where only it writes the type.
TYPES = {"f16": "f16", "q8": "q8_row", "q8_2f": "q8_2f", "q4": "q4_block", "q4t": "q4_tiled",
         "q4tp": "q4tp", "q2tp": None, "vbit": "vbit_ro", "q1": "q1", "q1p": None, "q1s": "q1s",
         "q1t": "q1t"}
ONLY_OURS = ("f32", "bf16", "vbit")
PROMPT = "The capital of France is"
N_TOKENS = 48


class Interop:
    def __init__(self, args):
        self.args = args
        self.n = {True: 0, False: 0}
        self.scratch = tempfile.mkdtemp(prefix="interop-", dir=args.work)

    def path(self, name):
        return os.path.join(self.scratch, name)

    def case(self, name, function, *args):
        try:
            remark = function(*args)
            ok = True
        except Exception as e:  # one failure must not hide the others
            remark, ok = "%s: %s" % (type(e).__name__, str(e)[:600].replace("\n", " | ")), False
        self.n[ok] += 1
        print("%s %d - %s%s" % ("ok" if ok else "not ok", sum(self.n.values()), name,
                                "  (%s)" % remark if remark else ""), flush=True)

    # ---- the two programs ----
    def call(self, *argv, **environ):
        env = dict(os.environ, RUST_LOG="error", **environ)
        p = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, env=env, timeout=1200)
        if p.returncode:
            raise AssertionError("%s: %d: %s%s" % (" ".join(map(str, argv)), p.returncode,
                                                   p.stdout[-300:], p.stderr[-300:]))
        return p.stdout.decode("utf-8", "replace")

    def tool(self, *argv, **environ):
        return self.call(self.args.tool, *argv, **environ)

    def reference(self, *argv, **environ):
        return self.call(self.args.reference, *argv, **environ)

    # ---- cases ----
    def everyone_verifies(self, path):
        self.reference("verify", path)
        self.tool("verify", path)
        result = verify(path)
        assert result.valid, [str(p) for p in result.problems]

    def same_list(self, model, path):
        """Names, shapes and bytes in directory order; the reference spells dtypes otherwise."""
        lines = self.reference("info", path, "--tensors", "").split("\n")
        rows = [line.split("\t") for line in lines if line.count("\t") == 3]
        listed = [(r[0].strip(), [int(n) for n in re.findall(r"\d+", r[2])],
                   int(re.findall(r"\d+", r[3])[0])) for r in rows]
        mine = [(name, list(t.shape), t.entry.nbytes) for name, t in model.tensors.items()]
        assert listed == mine, (listed[:2], mine[:2], len(listed), len(mine))

    def same_values(self, path, names=None):
        """The reference's, the tool's and the Python reader's float32 values."""
        model, n, lacking = Model(path), 0, set()
        self.same_list(model, path)
        for name in names or model.tensors:
            tensor = model.tensors[name]
            mine = tensor.values().reshape(-1)
            out = self.path("values.f32")
            self.reference("dequant", path, "--name", name, "--out", out, "--dtype", "f32")
            theirs = np.fromfile(out, dtype="<f4")
            assert support.same_bits(mine, theirs), "reference: %s %s" % (tensor.dtype, name)
            os.unlink(out)
            n += mine.size
            npy = self.path("values.npy")
            try:
                self.tool("tensor", path, name, "--npy", npy)
            except AssertionError as e:
                if "cannot decode" not in str(e):
                    raise
                lacking.add(tensor.dtype)
                continue
            ours = np.ascontiguousarray(np.load(npy))
            os.unlink(npy)
            assert support.same_bits(mine, ours), "tool: %s %s" % (tensor.dtype, name)
        assert not lacking, "the tool cannot decode %s; reader and reference agree on %d values" % (
            " ".join(sorted(lacking)), n)
        return "%d values" % n

    def theirs(self, quant, source):
        path = self.path("theirs-%s.cmf" % quant)
        self.reference("convert", "--model", source, "--quant", quant, "--output", path)
        self.everyone_verifies(path)
        return self.same_values(path)

    def ours(self, quant, source, names=None):
        path = self.path("ours-%s.cmf" % quant)
        self.tool("convert", source, "-o", path, "--quant", quant)
        self.everyone_verifies(path)
        return self.same_values(path, names)

    def same_payloads(self, quant):
        """How many payloads of the two encoders have the same hash; our error is never larger."""
        a = Model(self.path("theirs-%s.cmf" % quant)).tensors
        b = Model(self.path("ours-%s.cmf" % TYPES[quant])).tensors
        assert set(a) == set(b), set(a) ^ set(b)
        matrices = [name for name in a if len(a[name].shape) == 2]
        same = sum(a[n].entry.hash == b[n].entry.hash for n in matrices)
        source, ratios = Model(support.TINY).tensors, []
        for name in matrices:
            exact = source[name].values().astype(np.float64)
            theirs, ours = (np.linalg.norm(m[name].values() - exact) for m in (a, b))
            assert ours <= theirs * (1 + 1e-12), (name, ours, theirs)
            ratios.append(ours / theirs if theirs else 1.0)
        return "%d of %d matrices alike, our error is %.3f of theirs" % (
            same, len(matrices), sum(ratios) / len(ratios))

    def convert_ours(self, path, quant):
        self.tool("convert", self.args.model, "-o", path, "--quant", quant)
        return "%d bytes" % os.path.getsize(path)

    def convert_theirs(self, path):
        self.reference("import-gguf", self.args.model, "--quant", "q8", "--output", path)
        return "%d bytes" % os.path.getsize(path)

    def golden_file(self, name):
        self.everyone_verifies(os.path.join(support.FILES, name))

    def same_greedy(self, path):
        """f32 arithmetic on both sides; the text of the continuation, up to an end token."""
        ours = self.tool("run", path, "-p", PROMPT, "--raw", "--no-display-prompt", "--temp", 0,
                         "-n", N_TOKENS, "--compute", "f32", "-ctk", "f32", "-ctv", "f32")
        theirs = self.reference("run", path, "-p", PROMPT, "--raw", "--greedy", "-n", N_TOKENS,
                                CMF_SDOT="0", CMF_TASK="off")
        found = re.search(r"Prompt: %s\n\n(.*)\n\[(\d+) tokens" % re.escape(PROMPT), theirs,
                          re.DOTALL)
        assert found, theirs
        assert ours.strip() == found[1].strip() != "", "ours: %r; theirs: %r" % (ours, theirs)
        return "%s tokens, %r..." % (found[2], ours.strip()[:40])

    def signature(self):
        path = self.path("signed.cmf")
        shutil.copyfile(support.TINY, path)
        said = self.reference("sign", path, "--key", self.path("key"))
        key = re.search("[0-9a-f]{64}", said)[0]
        result = verify(path, key=key)
        assert result.valid and result.notes == ["signed by " + key], result
        self.tool("verify", path, "--require-signature", key)
        with open(path, "r+b") as f:
            f.seek(5000)
            f.write(b"x")
        assert "Signature" in [p.code for p in verify(path).problems]

    def signature_of_ours(self):
        path = self.path("ours.cmf")
        shutil.copyfile(support.TINY, path)
        self.tool("keygen", self.path("our-key"))
        self.tool("sign", path, "--key", self.path("our-key"))
        assert "signature valid" in self.reference("verify", path)

    def shards_of_ours(self, source):
        """Ours, cut: each verified alone, the set listed and compared with the whole."""
        whole, cut = self.path("whole.cmf"), self.path("cut.cmf")
        self.tool("convert", source, "-o", whole, "--quant", "q8_row")
        self.tool("split", whole, "-o", cut, "--shard-max-size", "40K")
        shards = sorted(n for n in os.listdir(self.scratch) if n.startswith("cut-"))
        assert len(shards) > 1
        for name in shards:
            self.everyone_verifies(self.path(name))
        self.same_values(self.path(shards[0]))
        said = self.reference("diff", whole, self.path(shards[0]))
        n = len(Model(whole).tensors)
        assert re.search(r"\b%d shared verbatim" % n, said), said[-300:]
        self.tool("merge", self.path(shards[1]), "-o", self.path("merged.cmf"))
        self.same_values(self.path("merged.cmf"))
        return "%d shards" % len(shards)

    def shards_of_theirs(self):
        """Those of the golden data, put together."""
        merged = self.path("merged-theirs.cmf")
        self.tool("merge", os.path.join(support.FILES, "tiny-shard-00003-of-00003.cmf"), "-o", merged)
        self.everyone_verifies(merged)
        self.same_values(merged)

    def grown_by_ours(self):
        """A file that lost a skill behind its end, and what compact makes of it."""
        grown = self.path("grown.cmf")
        shutil.copyfile(os.path.join(support.FILES, "tiny-skills.cmf"), grown)
        skill = next(iter(Model(grown).skills))
        self.tool("skill", "remove", grown, skill)
        self.everyone_verifies(grown)
        self.same_values(grown)
        self.tool("compact", grown)
        self.everyone_verifies(grown)
        self.same_values(grown)

    def expert_mask(self):
        """`moe-mask` keeps the most used experts until 90% of the routing counts are covered."""
        with open(self.path("stats.json"), "w") as f:
            f.write('{"1": [10, 0, 5, 0, 0, 0, 0, 1, 0, 7, 0]}')
        path = self.path("masked.cmf")
        self.reference("moe-mask", os.path.join(support.FILES, "tiny-moe.cmf"), "--stats",
                       self.path("stats.json"), "--cover", "0.9", "--name", "t", "--output", path)
        self.everyone_verifies(path)
        mask = Model(path).masks.named("t")
        kept = [np.flatnonzero(row).tolist() for row in mask.experts]
        assert kept == [list(range(11)), [0, 2, 9]], kept

    def skill_file(self):
        """Its `apply` and our overlay by indirection; a skill that it exports from the result."""
        base, path = support.TINY, self.path("applied.cmf")
        skill = os.path.join(support.FILES, "tiny-skill-file.cmf")
        self.reference("skill", "apply", base, skill, "-o", path)
        self.everyone_verifies(path)
        hashes = {n: t.entry.hash for n, t in Model(path).tensors.items()}
        overlay = Model(base).with_skill_file(skill)
        assert hashes == {n: t.entry.hash for n, t in overlay.items()}
        exported = self.path("exported.cmf")
        self.reference("skill", "export", path, "--base", base, "--id", "again", "-o", exported)
        self.everyone_verifies(exported)
        assert {n: t.entry.hash for n, t in Model(base).with_skill_file(exported).items()} == hashes


    def routes(self, path, prompt):
        """id -> E as the reference prints it."""
        text = self.reference("route", path, "-p", prompt, CMF_SDOT="0")
        return {m[0]: float(m[1]) for m in re.findall(r"^ +(\S+) +E = (\S+)", text, re.M)}

    def skills(self, source):
        """A skill added by both from one checkpoint: the same payloads, the same description, the same
        E; then cut out by each and applied by the other."""
        donor, prompts = make_hf(self.path("donor")), self.path("prompts")
        fine_tune(donor, Tuned.CHANGED)
        with open(prompts, "w") as f:
            f.write("SELECT name FROM t\nSELECT a, b FROM t WHERE\nthe quick brown fox\nhello\n")
        start, ours, theirs = (self.path("skill-%s.cmf" % n) for n in ("base", "ours", "theirs"))
        specialist = self.path("specialist.cmf")
        self.tool("convert", source, "-o", start, "--quant", "q8_row")
        self.tool("convert", donor, "-o", specialist, "--quant", "q8_row")
        shutil.copy(start, ours)
        self.tool("skill", "add", ours, "--id", "s", "--from", donor, "--prompts", prompts)
        self.reference("skill", "add", start, "--id", "s", "--from", donor, "--prompts", prompts,
                       "--tensors", "all", "--min-delta", "0.1", "--output", theirs, CMF_SDOT="0")
        self.everyone_verifies(ours)
        a, b = Model(ours), Model(theirs)
        for key in ("mean", "basis"):  # f16: f32 sums against f64 ones, then rounded
            x, y = (np.frombuffer(base64.b64decode(m.header["skills"][0]["selection"][key]), "<f2")
                    for m in (a, b))
            assert len(x) == len(y) and abs(x.astype(float) - y).max() < 1e-3 * abs(x).max(), key
        added = [n for n in b.tensors if n.startswith("skill.")]
        assert added and all(a.tensors[n].entry.hash == b.tensors[n].entry.hash for n in added)
        for prompt in ("SELECT x FROM", "the lazy dog", "hello world"):
            got = json.loads(self.tool("skill", "route", theirs, "-p", prompt, "--json"))["skills"]
            for name, e in self.routes(ours, prompt).items():
                assert abs([s["error"] for s in got if s["id"] == name][0] - e) < 6e-5, (prompt, e)
        tensors = {n: t.entry.hash for n, t in Model(specialist).tensors.items()}
        cut = {who: self.path("cut-%s.cmf" % who) for who in ("tool", "reference")}
        self.tool("skill", "export", specialist, "s", "--base", start, "-o", cut["tool"])
        self.reference("skill", "export", specialist, "--base", start, "--id", "s", "-o",
                       cut["reference"])
        for file, program in ((cut["tool"], self.reference), (cut["reference"], self.tool)):
            self.everyone_verifies(file)
            out = file[:-4] + "-applied.cmf"
            program("skill", "apply", start, file, "-o", out)
            self.everyone_verifies(out)
            assert {n: t.entry.hash for n, t in Model(out).tensors.items()} == tensors


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--build", action="store_true")
    ap.add_argument("--reference")
    ap.add_argument("--tool", default=os.path.join(ROOT, "build", "dev", "caisson"))
    ap.add_argument("--model")
    ap.add_argument("--work", default=os.path.join(ROOT, "build", "interop"))
    args = ap.parse_args(OPTIONS)
    os.makedirs(args.work, exist_ok=True)
    root = os.path.join(args.work, "cortiq")
    if args.build:
        subprocess.run(["nice", "-n", "15", "cargo", "install", "cortiq-cli", "--version", VERSION,
                        "--locked", "--no-default-features", "-j", "1", "--root", root], check=True)
    args.reference = args.reference or shutil.which("cortiq", path=os.path.join(root, "bin")) or \
        shutil.which("cortiq")
    if not args.reference:
        print("the reference is not there: --build, or --reference CORTIQ", file=sys.stderr)
        return 2
    run = Interop(args)
    print("# reference: %s" % run.reference("--version").strip())
    try:
        every_case(run)
    finally:
        shutil.rmtree(run.scratch, ignore_errors=True)
    print("%d passed, %d failed" % (run.n[True], run.n[False]))
    return 0 if run.n[True] and not run.n[False] else 1


def every_case(run):
    source = make_hf(run.path("hf"))
    written = run.tool("convert", "--help").split("--quant TYPE")[1].split("(")[1].split(")")[0]
    written = [name.strip() for name in written.split(",")]
    refused = ("odd-directory.cmf", "odd-mask-tail-bits.cmf")  # by us, on purpose
    for name in sorted(os.listdir(support.FILES)):
        if name.endswith(".cmf") and name not in refused:
            run.case("verify %s" % name, run.golden_file, name)
    every = os.path.join(support.FILES, "tiny-all-dtypes.cmf")
    decoded = [name for name, t in Model(every).tensors.items()
               if DTYPES[t.entry.dtype].decode and t.dtype != "u8"]  # the reference has no u8
    run.case("values of tiny-all-dtypes", run.same_values, every, decoded)
    run.case("a signature of the reference", run.signature)
    run.case("the reference checks our signature", run.signature_of_ours)
    run.case("expert rows of the reference", run.expert_mask)
    run.case("skill files, applied and exported", run.skill_file)
    run.case("our shards", run.shards_of_ours, source)
    run.case("shards of another writer, merged", run.shards_of_theirs)
    run.case("a file that we grew, and compacted", run.grown_by_ours)
    run.case("skills, added, routed, cut and applied", run.skills, source)
    for quant in TYPES:
        run.case("reads the reference's %s" % quant, run.theirs, quant, source)
    for quant in written:
        run.case("is read by the reference: %s" % quant, run.ours, quant, source)
    for quant, name in TYPES.items():
        if name in written:  # the source is the tiny golden model, in f32
            run.case("encoders: %s" % name, run.same_payloads, quant)
    if run.args.model:
        path = run.path("big-theirs.cmf")
        run.case("the reference imports the real model", run.convert_theirs, path)
        run.case("verify what it imported", run.everyone_verifies, path)
        run.case("greedy answer from its file", run.same_greedy, path)
        for quant in [name for name in written if name not in ONLY_OURS]:
            path = run.path("big-%s.cmf" % quant)
            run.case("converts the real model: %s" % quant, run.convert_ours, path, quant)
            run.case("verify the real model: %s" % quant, run.everyone_verifies, path)
            run.case("greedy answer: %s" % quant, run.same_greedy, path)
            if os.path.exists(path):
                os.unlink(path)


if __name__ == "__main__":
    sys.exit(main())
