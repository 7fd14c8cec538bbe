#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""verify: every damaged part is found and named; digests; signatures; the command line."""
import base64
import contextlib
import hashlib
import io
import json
import os
import random
import unittest
import unittest.mock

import support  # first: without numpy it skips the whole program
import numpy as np

import maker
from support import FILES, TINY
from caisson_cmf import File, Model, Parse, cli, digests, verify
from caisson_cmf.ranges import in_use

try:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
except ImportError:
    serialization = None

DAMAGED = ("tiny-f32", "tiny-masks", "tiny-index", "tiny-moe", "tiny-skills", "tiny-grown",
           "tiny-loop", "tiny-all-dtypes", "tiny-skill-file", "tiny-shard-00001-of-00003")


def finds_flips(self, name):
    """A flipped bit of each section and payload, at its ends and in between."""
    source = os.path.join(FILES, name + ".cmf")
    blob, file = bytearray(support.read(source)), File(source)
    rng = random.Random(name)
    for part in in_use(file.envelope, file.located):
        if part.section == "envelope" or (part.section == "data" and not part.tensor):
            continue
        for at in {part.start, part.end - 1, rng.randrange(part.start, part.end)}:
            bit = 1 << rng.randrange(8)
            blob[at] ^= bit
            problems = verify(self.write("flipped.cmf", blob)).problems
            blob[at] ^= bit
            named = {(p.section, p.tensor) for p in problems if p.code == "Hash"}
            self.assertIn((part.section, part.tensor or None), named, (part, at, bit))


@support.cases([(name, name) for name in DAMAGED], finds_flips)
class Flips(support.Case):
    def test_all_of_them_at_once(self):
        file, blob = File(TINY), bytearray(support.read(TINY))
        parts = [p for p in in_use(file.envelope, file.located) if p.section != "envelope"]
        for part in parts:
            if part.section == "data":
                blob[part.start] ^= 1
        blob[file.envelope.sections["vocab"].offset] ^= 1
        found = [(p.section, p.tensor) for p in verify(self.write("x.cmf", blob)).problems]
        self.assertEqual(found, [("vocab", None)] + [("data", e.name) for e in file.located])

    def test_truncated_anywhere(self):
        blob = support.read(os.path.join(FILES, "tiny-index.cmf"))
        for size in sorted(random.Random(3).sample(range(len(blob)), 200)) + [len(blob) - 1]:
            self.assertFalse(verify(self.write("cut.cmf", blob[:size])).valid, size)

    def test_swapped_words_are_not_seen_by_hash64(self):
        blob, file = bytearray(support.read(TINY)), File(TINY)
        at = file.payload_offset(file.located[0])
        blob[at : at + 16] = blob[at + 8 : at + 16] + blob[at : at + 8]
        self.assertTrue(verify(self.write("swapped.cmf", blob)).valid)


class Digests(support.Case):
    TENSORS = [maker.NORM, ("big", 6, (600000,), bytes(range(250)) * 2400)]

    def made(self, swap=False, **keys):
        tensors = list(self.TENSORS)
        if swap:
            raw = tensors[1][3]
            raw = raw[:300000] + raw[300008:300016] + raw[300000:300008] + raw[300016:]
            tensors[1] = tensors[1][:3] + (raw,)
        head = json.loads(maker.header())
        head.update(keys)
        data = maker.file(tensors, json.dumps(head).encode(), vocab=b"{}")
        return verify(self.write("made.cmf", data))

    def test_malformed(self):
        good = "A" * 22 + "=="
        for value in ("***", "AAAA", 7, None, base64.b64encode(b"\0" * 31).decode(),
                      "A" * 42 + "B=", "A" * 43 + "=\n"):
            result = self.made(**{digests.TENSOR_KEY: value})
            self.assertEqual([p.code for p in result.problems], ["Parse"], value)
        for value in ("AAAA", {"vocab": "AAAA"}, {"vocab": None}, {"masks": good}, {"data": good},
                      {"header": good}, {"vocab": "A" * 21 + "B=="}):
            result = self.made(**{digests.SECTION_KEY: value})
            self.assertEqual([p.code for p in result.problems], ["Parse"], value)
            with self.assertRaises(Parse):
                Model(self.scratch("made.cmf"))

    def test_without_the_module(self):
        zeros = base64.b64encode(b"\0" * 32).decode()
        with unittest.mock.patch.object(digests, "xxhash", None):
            result = self.made(**{digests.TENSOR_KEY: zeros})
        self.assertEqual(result.problems, [])
        self.assertIn("xxhash", result.notes[0])

    @unittest.skipUnless(digests.xxhash, "needs the module xxhash")
    def test_swapped_words_are_seen(self):
        raw = b"".join(digests.digest(t[3]) for t in self.TENSORS)
        keys = {digests.TENSOR_KEY: base64.b64encode(raw).decode(),
                digests.SECTION_KEY: {"vocab": base64.b64encode(digests.digest(b"{}")).decode()}}
        self.assertEqual(self.made(**keys).problems, [])
        (problem,) = self.made(swap=True, **keys).problems
        self.assertEqual((problem.code, problem.tensor), ("Hash", "big"))
        self.assertEqual(digests.digest(b"").hex(), "99aa06d3014798d86001c324468d497f")
        keys[digests.SECTION_KEY]["vocab"] = "A" * 22 + "=="
        self.assertEqual([p.section for p in self.made(**keys).problems], ["vocab"])


class Signatures(support.Case):
    def signed(self, **changes):
        path = self.write("model.cmf", maker.file())
        private = Ed25519PrivateKey.from_private_bytes(b"\7" * 32)
        public = private.public_key().public_bytes(serialization.Encoding.Raw,
                                                   serialization.PublicFormat.Raw)
        sha256 = hashlib.sha256(maker.file())
        form = {"alg": "ed25519-sha256", "pubkey": public.hex(), "sha256": sha256.hexdigest(),
                "sig": private.sign(sha256.digest()).hex()}
        form.update(changes)
        self.write("model.cmf.sig", json.dumps(form, indent=2).encode())
        return path, public.hex()

    @unittest.skipUnless(serialization, "needs the module cryptography")
    def test_good_and_bad(self):
        path, public = self.signed()
        self.assertEqual(verify(path).problems, [])
        self.assertEqual(verify(path).notes, ["signed by " + public])
        self.assertEqual(verify(path, key=public).problems, [])
        self.assertEqual(verify(path, key="0" * 64).problems[0].code, "Signature")
        for code, changes in (
                ("UnsupportedFeature", {"alg": "rsa"}), ("Signature", {"sha256": "0" * 64}),
                ("Signature", {"sig": "0" * 128}), ("Parse", {"sig": "00"}),
                ("Parse", {"pubkey": "0" * 62}), ("Parse", {"pubkey": "g" * 64}),
                ("Parse", {"pubkey": 7}), ("Signature", {"pubkey": "ab" * 32})):
            path, _ = self.signed(**changes)
            self.assertEqual([p.code for p in verify(path).problems], [code], changes)

    def test_absent_or_no_json(self):
        path = self.write("model.cmf", maker.file())
        self.assertEqual(verify(path).problems, [])
        self.assertEqual(verify(path, key="0" * 64).problems[0].code, "Signature")
        for raw in (b"", b"{}", b"{" * 5000, b"\xff", b" " * 70000):
            self.write("model.cmf.sig", raw)
            self.assertEqual([p.code for p in verify(path).problems], ["Parse"], raw[:9])


class CommandLine(support.Case):
    def call(self, *args):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(list(args))
        return code, out.getvalue(), err.getvalue()

    def test_info_and_list(self):
        for name in ("tiny-f32", "tiny-moe", "tiny-skills", "tiny-shard-00002-of-00003"):
            path = os.path.join(FILES, name + ".cmf")
            for command in ("info", "list"):
                self.assertEqual(self.call(command, path)[0], 0)
                code, out, _ = self.call(command, path, "--json")
                self.assertEqual(code, 0)
                json.loads(out)
        self.assertEqual(json.loads(self.call("info", path, "--json")[1])["masks"], ["general"])

    def test_verify(self):
        bad = os.path.join(support.BAD, "verify-tensor.cmf")
        self.assertEqual(self.call("verify", TINY)[0], 0)
        code, out, _ = self.call("verify", TINY, bad)
        self.assertEqual(code, 1)
        self.assertIn("model.norm.weight", out)
        code, out, _ = self.call("verify", "--json", TINY, bad)
        self.assertEqual([r["valid"] for r in json.loads(out)], [True, False])

    def test_tensor(self):
        skills = os.path.join(FILES, "tiny-skills.cmf")
        name = "model.layers.1.mlp.up_proj.weight"
        npy, raw = self.scratch("out.npy"), self.scratch("out.bin")
        code, out, _ = self.call("tensor", skills, name, "--skill", "sql", "--npy", npy, "--raw",
                                 raw, "--json")
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)["name"], "skill.sql." + name)
        model = Model(skills)
        self.assertTrue(support.same_bits(np.load(npy), model.values(name, "sql")))
        self.assertEqual(support.read(raw), model.find(name, "sql").payload().tobytes())
        self.assertEqual(self.call("tensor", skills, name)[0], 0)

    def test_errors_are_one_line(self):
        for args in (("info", self.scratch("absent")), ("tensor", TINY, "absent"),
                     ("tensor", TINY, "model.norm.weight", "--skill", "absent"),
                     ("list", os.path.join(support.BAD, "magic-first-byte.cmf"))):
            code, out, err = self.call(*args)
            self.assertEqual((code, out), (1, ""))
            self.assertEqual(err.count("\n"), 1)
        with self.assertRaises(SystemExit) as caught:
            self.call("other")
        self.assertEqual(caught.exception.code, 2)


support.main()
