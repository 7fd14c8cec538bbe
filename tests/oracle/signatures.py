#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Detached signatures by the cryptography package (50.0.2, any recent one will do) and hashlib.

    signatures.py golden              writes tests/golden/format/signatures.json: seeds, public keys,
                                      messages and the .sig text that the format's writer makes
    signatures.py check FILE.cmf...   FILE.cmf.sig against the file; TAP
"""
import hashlib
import json
import os
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def sign(seed, data):
    key = Ed25519PrivateKey.from_private_bytes(seed)
    digest = hashlib.sha256(data).digest()
    return json.dumps({"alg": "ed25519-sha256", "pubkey": key.public_key().public_bytes_raw().hex(),
                       "sha256": digest.hex(), "sig": key.sign(digest).hex()}, indent=2)


def golden():
    rows = []
    for i, n in enumerate((0, 1, 55, 56, 64, 1000, 300000)):
        seed = hashlib.sha256(b"seed %d" % i).digest()
        data = bytes((k * k + i) & 255 for k in range(n))
        rows.append({"seed": seed.hex(), "n": n, "sig": sign(seed, data)})
    with open(os.path.join(ROOT, "tests/golden/format/signatures.json"), "w") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")


def check(path):
    with open(path + ".sig") as f:
        s = json.load(f)
    with open(path, "rb") as f:
        digest = hashlib.sha256(f.read()).digest()
    if list(s) != ["alg", "pubkey", "sha256", "sig"] or s["alg"] != "ed25519-sha256":
        return "not the keys of the format"
    if s["sha256"] != digest.hex():
        return "another SHA-256"
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(s["pubkey"])).verify(bytes.fromhex(s["sig"]), digest)
    except InvalidSignature:
        return "the signature does not verify"
    return None


def main():
    if sys.argv[1:] == ["golden"]:
        golden()
        return 0
    if len(sys.argv) < 3 or sys.argv[1] != "check":
        sys.exit(__doc__)
    failed = 0
    print("1..%d" % (len(sys.argv) - 2))
    for i, path in enumerate(sys.argv[2:], 1):
        bad = check(path)
        failed += bad is not None
        print("%s %d - signature of %s%s" % ("not ok" if bad else "ok", i, path, ": " + bad if bad else ""))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
