#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""keygen, sign, verify and --require-signature. The signatures are checked by Python's cryptography
package where it is installed (tests/oracle/signatures.py does the same for any file)."""
import hashlib
import json
import os
import shutil
import stat

import tool
from tool import FAILED, TINY, USAGE

try:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:
    Ed25519PublicKey = None


class Sign(tool.Case):
    def setUp(self):
        super().setUp()
        self.key = self.path("k")
        self.model = self.path("m.cmf")
        shutil.copyfile(TINY, self.model)
        self.public = self.ok("keygen", self.key).out.strip()

    def sign(self):
        out = self.ok("sign", self.model, "--key", self.key).out
        self.assertIn(self.public, out)
        return json.loads(tool.read(self.model + ".sig"))

    def run_model(self, *args):
        return tool.run("run", self.model, "a", "-n", 1, "--temp", 0, *args)

    def test_the_secret_key_is_its_owners(self):
        self.assertEqual(stat.S_IMODE(os.stat(self.key).st_mode), 0o600)
        self.assertEqual(tool.read(self.key + ".pub", "r").strip(), self.public)
        secret = tool.read(self.key, "r").strip()
        self.assertEqual(len(secret), 64)
        self.assertNotEqual(secret, self.public)
        self.assertIn("already", self.fails(FAILED, "keygen", self.key).err)
        self.assertEqual(tool.read(self.key, "r").strip(), secret)

    def test_signature_is_the_formats(self):
        s = self.sign()
        self.assertEqual(list(s), ["alg", "pubkey", "sha256", "sig"])
        self.assertEqual(s["alg"], "ed25519-sha256")
        self.assertEqual(s["pubkey"], self.public)
        digest = hashlib.sha256(tool.read(self.model)).digest()
        self.assertEqual(s["sha256"], digest.hex())
        if Ed25519PublicKey is None:
            self.skipTest("Python has no cryptography package")
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(s["pubkey"]))
        key.verify(bytes.fromhex(s["sig"]), digest)

    def test_verify_checks_what_lies_beside(self):
        r = self.ok("verify", self.model, "--json").json[0]
        self.assertIsNone(r["signed_by"])
        self.fails(FAILED, "verify", self.model, "--require-signature", self.public)
        self.sign()
        r = self.ok("verify", self.model, "--json", "--require-signature", self.key + ".pub").json[0]
        self.assertEqual(r["signed_by"], self.public)
        self.assertIn(self.public, self.ok("verify", self.model).out)
        with open(self.model + ".sig", "w") as f:
            f.write("{}")
        r = self.fails(FAILED, "verify", self.model, "--json").json[0]
        self.assertEqual([p["code"] for p in r["problems"]], ["Parse"])

    def test_a_changed_file_is_refused_by_run(self):
        self.sign()
        self.assertEqual(self.run_model("--require-signature", self.public).rc, tool.OK)
        self.assertEqual(self.run_model("--require-signature", self.public.upper()).rc, tool.OK)
        blob = bytearray(tool.read(self.model))
        blob[-1] ^= 1
        with open(self.model, "wb") as f:
            f.write(blob)
        r = self.run_model("--require-signature", self.public)
        self.assertEqual(r.rc, FAILED)
        self.assertIn("not the one that was signed", r.err)
        self.assertEqual(r.out, "")
        p = self.fails(FAILED, "verify", self.model, "--json").json[0]["problems"]
        self.assertEqual(p[-1]["code"], "Signature")

    def test_run_wants_that_key(self):
        self.assertIn("no signature", self.run_model("--require-signature", self.public).err)
        self.sign()
        self.assertIn("not checked", self.run_model().err)
        self.assertNotIn("not checked", self.run_model("--require-signature", self.public).err)
        other = self.ok("keygen", self.path("k2")).out.strip()
        r = self.run_model("--require-signature", other)
        self.assertEqual(r.rc, FAILED)
        self.assertIn("another key", r.err)
        self.assertEqual(self.run_model("--require-signature", self.path("none")).rc, FAILED)
        self.assertEqual(self.run_model("--require-signature").rc, USAGE)

    def test_every_command_that_runs_a_model_wants_it(self):
        with open(self.path("t.txt"), "w") as f:
            f.write("a text of some tokens to be scored")
        commands = (["eval", self.model, "--tokens", "1,2"], ["ppl", self.model, self.path("t.txt")],
                    ["bench", self.model, "-p", 2, "-n", 1, "-r", 1])
        for c in commands:
            r = self.fails(FAILED, *c, "--require-signature", self.public)
            self.assertIn("no signature", r.err)
        self.sign()
        for c in commands:
            self.ok(*c, "--require-signature", self.public, "--verify")

    def test_a_tokenizer_beside_the_file_is_not_signed(self):
        source = os.path.join(tool.ROOT, "tests/golden/families/gemma")
        os.mkdir(self.path("hf"))
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(os.path.join(source, name), os.path.join(self.path("hf"), name))
        model = self.path("t.cmf")
        self.ok("convert", self.path("hf"), "-o", model)
        shutil.copyfile(os.path.join(source, "tokenizer.json"), self.path("tokenizer.json"))
        self.ok("sign", model, "--key", self.key)
        r = tool.run("tokenize", model, stdin=b"a")
        self.assertIn("using the tokenizer.json beside it", r.err)
        r = tool.run("run", model, "a", "-n", 1, "--require-signature", self.public)
        self.assertEqual(r.rc, FAILED)
        self.assertIn("no signature covers it", r.err)

    def test_the_halves_of_a_key_are_not_taken_for_each_other(self):
        secret = tool.read(self.key, "r").strip()
        self.assertIn("public key", self.fails(FAILED, "sign", self.model, "--key", self.key + ".pub").err)
        self.assertFalse(os.path.exists(self.model + ".sig"))
        self.sign()
        for command in (["verify", self.model], ["run", self.model, "a"]):
            r = self.fails(FAILED, *command, "--require-signature", self.key)
            self.assertIn("secret key", r.err)
            self.assertNotIn(secret, r.out + r.err)

    def test_sign_refuses_what_is_no_model(self):
        with open(self.path("x.cmf"), "w") as f:
            f.write("not a model")
        self.fails(FAILED, "sign", self.path("x.cmf"), "--key", self.key)
        self.assertFalse(os.path.exists(self.path("x.cmf.sig")))
        self.fails(FAILED, "sign", self.model, "--key", self.path("none"))
        self.fails(FAILED, "sign", self.model, "--key", self.model)


class FirstUse(tool.Case):
    def test_run_checks_what_it_uses(self):
        t = [t for t in tool.run("tensor", TINY, "--json").json if t["name"] == "model.norm.weight"][0]
        path = tool.copy_tiny(self.path("m.cmf"), flip=t["offset"] + 1)
        self.assertEqual(tool.run("run", path, "a", "-n", 1).rc, tool.OK)
        for more in ([], ["--no-mmap"]):
            r = tool.run("run", path, "a", "-n", 1, "--verify", *more)
            self.assertEqual(r.rc, FAILED)
            self.assertIn("model.norm.weight", r.err)
            self.assertEqual(self.ok("run", TINY, "a", "-n", 1, "--verify", *more).rc, tool.OK)


if __name__ == "__main__":
    tool.main()
