#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tool and this reader on the same files: same directory, same values, same verdict.

A difference is a bug in one of the two, and the description says in which.
"""
import json
import os
import subprocess
import sys
import unittest

import support  # first: without numpy it skips the whole program
import numpy as np

import maker
import mutate
from support import FILES
from caisson_cmf import DTYPES, File, Model, verify

try:
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    ed25519 = None

sys.path.insert(0, os.path.join(support.ROOT, "tests", "cli"))
from test_convert import make_hf  # noqa: E402

TOOL = os.path.join(support.BUILD, "caisson")
SOUND = sorted(name for name in os.listdir(FILES) if name.endswith(".cmf")
               and name not in ("odd-directory.cmf", "odd-mask-tail-bits.cmf"))
MUTATIONS = 40  # a file
SEED = "caisson"


def tool(*args, fails=False):
    """Standard output of a call, which must succeed; what one that must not says instead."""
    p = subprocess.run([TOOL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200)
    if (p.returncode != 0) != fails and fails is not None:
        raise AssertionError("%s: %d\n%s" % (" ".join(args), p.returncode, p.stderr.decode()))
    return p.stderr if fails else p.stdout


def quant_types():
    """The names in the help of convert: every --quant that the tool writes."""
    if not os.access(TOOL, os.X_OK):
        return []
    text = tool("convert", "--help").decode()
    return [t.strip() for t in text.split("--quant TYPE")[1].split("(")[1].split(")")[0].split(",")]


QUANT_TYPES = quant_types()


def reads_what_the_tool_writes(self, quant):
    path = self.scratch(quant + ".cmf")
    tool("convert", make_hf(self.scratch("hf")), "-o", path, "--quant", quant)
    self.assertEqual(verify(path).problems, [])
    model = same_directory(self, path)
    for name, tensor in model.tensors.items():
        if "layers.1." not in name:
            same_values(self, path, name, tensor)


def same_directory(self, path):
    model = Model(path)
    mine = [{"name": name, "dtype": tensor.dtype, "shape": list(tensor.shape),
             "shard": model.files.index(tensor.file) + 1,
             "offset": tensor.file.payload_offset(tensor.entry), "bytes": tensor.entry.nbytes,
             "hash": "%016x" % tensor.entry.hash} for name, tensor in model.tensors.items()]
    self.assertEqual(mine, json.loads(tool("tensor", path, "--json")))
    return model


def same_values(self, path, name, tensor):
    """The values of the tool's --npy to the bit."""
    npy = self.scratch("values.npy")
    tool("tensor", path, name, "--npy", npy)
    theirs = np.load(npy)
    os.unlink(npy)
    self.assertEqual(theirs.shape, tensor.shape)
    self.assertTrue(support.same_bits(np.ascontiguousarray(theirs), tensor.values()), name)


SHAPES = ((1, 32), (3, 64), (7, 96), (2, 1056), (33, 32), (1, 2080), (5, 256), (16, 288), (4, 576),
          (2, 4128))


def random_payload(dtype, shape, rng):
    """Bytes that no encoder writes and every decoder must take: any scale, any code. Only verify
    minds where they are not finite."""
    rows, cols = shape
    groups = rows * cols // 32
    if dtype in ("vbit", "vbit_ro"):
        widths = rng.choice(np.array([3, 4, 5, 6, 8], np.uint8), rows)
        ends = np.concatenate([[0], np.cumsum((cols * widths.astype(int) + 7) // 8)])
        offsets = ends.astype("<u4").tobytes() if dtype == "vbit_ro" else b""
        return widths.tobytes() + rng.bytes(2 * groups) + offsets + rng.bytes(int(ends[-1]))
    if dtype == "q1s":
        index = np.sort(rng.choice(rows * cols, 5, replace=False)).astype("<u4")
        entries = b"".join(i.tobytes() + rng.bytes(2) for i in index)
        return rng.bytes(6 * groups) + (5).to_bytes(4, "little") + entries
    if dtype == "q1t":
        counts = rng.integers(0, 4, rows)
        row_ptr = np.concatenate([[0], np.cumsum(counts)]).astype("<u4").tobytes()
        entries = b"".join(col.tobytes() + rng.bytes(2) for n in counts
                           for col in np.sort(rng.choice(cols, n, replace=False)).astype("<u2"))
        return rng.bytes(9 * groups) + row_ptr + entries
    return rng.bytes(BY_NAME[dtype].nbytes(shape))


def decodes_anything(self, dtype):
    rng = np.random.default_rng(len(dtype))
    tensors = [("t%d" % i, BY_NAME[dtype].id, shape, random_payload(dtype, shape, rng))
               for i, shape in enumerate(SHAPES * 2)]
    path = self.write("random.cmf", maker.file(tensors, features=5))
    odd = [("Parse", name) for name, t in Model(path).tensors.items()
           if not np.isfinite(t.values()).all()]
    theirs = json.loads(tool("verify", "--json", path, fails=None))[0]["problems"]
    self.assertEqual([(p.code, p.tensor) for p in verify(path).problems], odd)
    self.assertEqual([(p["code"], p["tensor"]) for p in theirs], odd)
    for name, tensor in Model(path).tensors.items():
        same_values(self, path, name, tensor)


BY_NAME = {row.name: row for row in DTYPES.values()}


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
@support.cases([(dtype, dtype) for dtype in QUANT_TYPES], decodes_anything)
class RandomPayload(support.Case):
    pass


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
@support.cases([("reads " + quant, quant) for quant in QUANT_TYPES], reads_what_the_tool_writes)
class Written(support.Case):
    def test_every_dtype_of_a_golden_file(self):
        """The tool may lack a dtype; then it says so and writes nothing."""
        path = os.path.join(FILES, "tiny-all-dtypes.cmf")
        for name, tensor in same_directory(self, path).tensors.items():
            if tensor.dtype in QUANT_TYPES:
                same_values(self, path, name, tensor)
            elif DTYPES[tensor.entry.dtype].decode is None:
                tool("tensor", path, name, "--npy", self.scratch("x.npy"), fails=True)

    def test_shards_that_the_tool_cuts(self):
        whole = Model(support.TINY)
        tool("split", support.TINY, "-o", self.scratch("s.cmf"), "--shard-max-size", "60K")
        shards = sorted(os.listdir(self.scratch()))
        self.assertGreater(len(shards), 2)
        for name in shards:
            self.assertEqual(verify(self.scratch(name)).problems, [])
        model = same_directory(self, self.scratch(shards[1]))
        self.assertEqual([(name, t.entry.hash, bytes(t.payload())) for name, t in model.tensors.items()],
                         [(name, t.entry.hash, bytes(t.payload())) for name, t in whole.tensors.items()])
        self.assertEqual(bytes(model.vocab), bytes(whole.vocab))
        tool("merge", self.scratch(shards[0]), "-o", self.scratch("one.cmf"))
        self.assertEqual(model.base_key, Model(self.scratch("one.cmf")).base_key)

    def test_a_file_changed_in_its_place(self):
        path = self.write("m.cmf", support.read(support.TINY))
        tool("requant", path, "--tensor", "*.mlp.*=q8_row", "--tensor", "*_proj.weight=q4_block")
        self.assertEqual(verify(path).problems, [])
        for name, tensor in same_directory(self, path).tensors.items():
            same_values(self, path, name, tensor)

    def test_an_exported_checkpoint(self):
        """Names, shapes and values of the safetensors file, taken apart by a third reader."""
        for name in ("tiny-f32.cmf", "tiny-grown.cmf", "tiny-shard-00002-of-00003.cmf"):
            model, hf = Model(os.path.join(FILES, name)), self.scratch(name + ".hf")
            tool("export", os.path.join(FILES, name), "-o", hf)
            exported = support.SafeTensors(os.path.join(hf, "model.safetensors"))
            wanted = {key: t for key, t in model.tensors.items() if not key.startswith("skill.")}
            self.assertEqual(list(exported.header), list(wanted))
            for key, tensor in wanted.items():
                self.assertEqual(tuple(exported.header[key]["shape"]), tensor.shape)
                self.assertTrue(support.same_bits(exported[key], tensor.values()), key)

    def test_a_sharded_model(self):
        path = os.path.join(FILES, "tiny-shard-00002-of-00003.cmf")
        for name, tensor in same_directory(self, path).tensors.items():
            same_values(self, path, name, tensor)


def same_masks(self, name):
    """What is on in each layer, and the meta, of `masks list --json`."""
    path = os.path.join(FILES, name)
    model = Model(path)
    catalog, layers = model.masks, model.arch["num_layers"]
    theirs = json.loads(tool("masks", "list", path, "--json"))
    self.assertEqual(theirs["default_task"], catalog.default_task)
    self.assertEqual([other["name"] for other in theirs["masks"]], [m.name for m in catalog.masks])
    for mask, other in zip(catalog.masks, theirs["masks"]):
        for key in ("task_id", "description", "parent", "priority"):
            self.assertEqual(other[key], mask.meta[key])
        self.assertEqual(other["quality"] is None, mask.meta["quality"] is None)
        on = [{"layer": layer, "on": mask.gate_of(layer), "heads": int(mask.heads_of(layer).sum()),
               "neurons": [int(mask.ffn_of(visit).sum())
                           for visit in range(layer, model.header.visits, layers)]}
              for layer in range(layers)]
        if mask.experts is not None:
            for row in on:
                row["experts"] = int(mask.experts_of(row["layer"]).sum())
        self.assertEqual(other["layers"], on, mask.name)


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
@unittest.skipUnless(ed25519, "needs the module cryptography")
class Signatures(support.Case):
    def test_of_the_tool_and_what_becomes_of_it(self):
        path = self.write("model.cmf", support.read(support.TINY))
        key = tool("keygen", self.scratch("key")).decode().split()[-1]
        tool("sign", path, "--key", self.scratch("key"))
        result = verify(path, key=key)
        self.assertEqual((result.problems, result.notes), ([], ["signed by " + key]))
        form = json.loads(support.read(path + ".sig").decode())
        changes = [{}, {"alg": "rsa"}, {"x": 1}, {"sig": None}, {"pubkey": "0" * 64},
                   {"sha256": "0" * 64}, {"sha256": form["sha256"].upper()},
                   {"pubkey": key.upper()}, {"sig": form["sig"][2:]}, {"sig": form["sig"] + "00"},
                   {"sig": form["sig"][:64] + "ff" * 32}, {"sig": " " + form["sig"][1:]}]
        texts = [json.dumps({**form, **change}) for change in changes]
        texts += ["", "[]", texts[0] + "x", " \n" + texts[0] + "\n", "\ufeff" + texts[0]]
        for text in texts:
            self.write("model.cmf.sig", text.encode())
            theirs = json.loads(tool("verify", "--json", path, fails=None))[0]
            self.assertEqual(verify(path).valid, theirs["valid"], text)


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class Numbers(support.Case):
    """F16: scales and values that are not finite, under hashes that are right."""

    BAD = (("x.f16", 1, (4, 2), bytes(10) + b"\x00\xfc" + bytes(4), 10, 2, "a value", "-inf in row 2"),
           ("x.f32", 0, (3,), bytes(8) + b"\x00\x00\xc0\x7f", 8, 4, "a value", "nan in row 2"),
           ("x.q8_row", 3, (2, 3), bytes(8) + b"\x00\x7c", 8, 2, "a scale", "inf in row 1"),
           ("x.q8_2f", 9, (1, 3), bytes(7) + b"\x01\x7c" + bytes(2), 7, 2, "a scale", "nan"),
           ("x.q1s", 13, (1, 32), bytes(6) + b"\1\0\0\0" + bytes(4) + b"\x00\x7c", 14, 2, "a value", "inf"))

    def test_each_is_named(self):
        path = self.write("m.cmf", maker.file(tensors=[maker.NORM] + [bad[:4] for bad in self.BAD]))
        file = File(path)
        theirs = json.loads(tool("verify", "--json", path, fails=None))[0]
        self.assertFalse(theirs["valid"])
        want = [("Parse", "data", name, at + file.payload_offset(file.located[i + 1]), n,
                 what + " is not a finite number", value)
                for i, (name, _, _, _, at, n, what, value) in enumerate(self.BAD)]
        self.assertEqual([tuple(p[k] for k in ("code", "section", "tensor", "offset", "bytes",
                                               "what", "got")) for p in theirs["problems"]], want)
        self.assertEqual([(p.code, p.section, p.tensor) for p in verify(path).problems],
                         [w[:3] for w in want])

    def test_a_wrong_hash_is_told_alone(self):
        path = self.write("m.cmf", maker.file(tensors=[self.BAD[0][:4]]))
        blob, file = bytearray(support.read(path)), File(path)
        blob[file.payload_offset(file.located[0])] ^= 1
        path = self.write("m.cmf", bytes(blob))
        theirs = json.loads(tool("verify", "--json", path, fails=None))[0]
        self.assertEqual([p["code"] for p in theirs["problems"]], ["Hash"])
        self.assertEqual([p.code for p in verify(path).problems], ["Hash"])

    def test_what_is_run_with_verify_is_refused(self):
        blob = bytearray(support.read(support.TINY))
        file = File(support.TINY)
        entry = next(e for e in file.located if e.name.endswith("k_proj.weight"))
        start = file.payload_offset(entry)
        blob[start + 40 : start + 44] = b"\x00\x00\x80\x7f"
        path = self.write("m.cmf", mutate.Mutator(support.TINY, SEED).rehash_payload(blob, entry))
        self.assertIn(b"kv cache, layer 0", tool("run", path, "a", "-n", "1", fails=True))
        for way in ([], ["--no-mmap"]):
            err = tool("run", path, "a", "-n", "1", "--verify", *way, fails=True)
            self.assertIn(b"a value is not a finite number", err)
            self.assertIn(entry.name.encode(), err)


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class Trust(support.Case):
    def test_another_template_than_the_one_that_was_signed(self):
        """F16: the header and its hashes are made right again; the signature is not."""
        path = self.write("m.cmf", support.read(support.TINY))
        key = tool("keygen", self.scratch("key")).decode().split()[-1]
        tool("sign", path, "--key", self.scratch("key"))
        blob, file = bytearray(support.read(path)), File(path)
        section = file.envelope.sections["header"]
        head = bytes(blob[section.offset : section.end])
        self.assertEqual(head.count(b"<|im_start|>assistant"), 1)
        blob[section.offset : section.end] = head.replace(b"<|im_start|>assistant",
                                                          b"<|im_start|>system   ")
        path = self.write("m.cmf", bytes(mutate.Mutator(path, SEED).rehash(blob)))
        theirs = json.loads(tool("verify", "--json", path, fails=None))[0]
        self.assertEqual([p["code"] for p in theirs["problems"]], ["Signature"])
        self.assertEqual([p.code for p in verify(path).problems], ["Signature"])
        tool("run", path, "a", "-n", "1")
        err = tool("run", path, "a", "-n", "1", "--require-signature", key, fails=True)
        self.assertIn(b"not the one that was signed", err)


WITH_MASKS = [name for name in SOUND if name[:-4] in ("tiny-masks", "tiny-index", "tiny-moe",
                                                      "tiny-loop", "odd-section-order")]


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
@support.cases([(name, name) for name in WITH_MASKS], same_masks)
class Masks(support.Case):
    def test_made_by_the_tool(self):
        text = self.write("t.txt", b"a small text that a small model reads, again and again. " * 8)
        for source in (support.TINY, os.path.join(FILES, "tiny-masks.cmf"),
                       os.path.join(FILES, "tiny-moe.cmf")):
            path = self.write("made.cmf", support.read(source))
            tool("masks", "make", path, "half", "--scattered", "--head-sparsity", "0.4", "--text", text)
            same_masks(self, path)
            self.assertEqual(verify(path).problems, [])
            self.assertIn("half", [m.name for m in Model(path).masks.masks])


def same_verdict(self, name):
    """verify --json of both on damaged copies. The tool also refuses values of `arch` that no
    model can have (docs/cmf.md, "Where we are stricter"); those the format does not forbid."""
    mutations = list(mutate.Mutator(os.path.join(FILES, name), SEED).mutations(MUTATIONS))
    self.assertGreater(len(mutations), MUTATIONS // 2)
    paths = [self.write("%03d.cmf" % i, blob) for i, (_, blob) in enumerate(mutations)]
    theirs = json.loads(tool("verify", "--json", *paths, fails=None))
    self.assertEqual(len(theirs), len(paths))
    differences = []
    for (what, _), path, other in zip(mutations, paths, theirs):
        mine = verify(path).as_json()
        is_arch = what.split()[1].startswith("header") and mine["valid"] and \
            {p["section"] for p in other["problems"]} == {"header"}
        # A tool that cannot decode overlays does not look into them either.
        is_overlay = "q1t" not in QUANT_TYPES and \
            {p["tensor"] for p in mine["problems"]} <= {"all.q1s", "all.q1t"}
        if mine["valid"] != other["valid"] and not is_arch and not is_overlay:
            differences.append("%s: reader: %s, tool: %s" % (what, first(mine), first(other)))
    self.assertEqual(differences, [])


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
@support.cases([(name, name) for name in SOUND], same_verdict)
class Damaged(support.Case):
    def test_a_file_of_the_tool(self):
        path = self.scratch("written.cmf")
        tool("convert", make_hf(self.scratch("hf")), "-o", path, "--quant", "q4tp")
        same_verdict(self, path)

    def test_golden_files_of_refusal(self):
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(support.BAD)
                 for name in sorted(names) if name.endswith(".cmf")]
        for path, other in zip(paths, json.loads(tool("verify", "--json", *paths, fails=None))):
            if "hostile" in path:  # overlays that lie: open or decoding may find it
                continue
            mine = verify(path).as_json()
            self.assertEqual(first(mine), first(other), path)


def first(result):
    """What verify says of a file in short: code and section of the first problem."""
    return [(p["code"], p["section"]) for p in result["problems"][:1]] or "valid"


support.main()
