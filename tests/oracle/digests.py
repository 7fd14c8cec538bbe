#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The second digests of CMF files (docs/cmf.md, "Digests") by the xxhash package of PyPI (3.6.0).

    digests.py golden            writes tests/golden/base/digests.json
    digests.py check FILE.cmf... recomputes both header keys of each file from its bytes; TAP

The golden bytes: x = 1; each byte is the top byte of x = x * 1664525 + 1013904223 modulo 2^32; 700,001
of them, then the same again and again.
"""
import base64
import json
import os
import struct
import sys

import xxhash

PIECE = 256 << 10
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LENGTHS = [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 239, 240, 241, 255, 256,
           257, 511, 512, 513, 1023, 1024, 1025, 4095, 65537, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE,
           2 * PIECE + 5, 700001, 66 * PIECE + 3]


def digest(data):
    if len(data) <= PIECE:
        return xxhash.xxh3_128_digest(data)
    pieces = [xxhash.xxh3_128_digest(data[i:i + PIECE]) for i in range(0, len(data), PIECE)]
    return xxhash.xxh3_128_digest(b"".join(pieces))


def golden():
    x, data = 1, bytearray()
    for _ in range(700001):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        data.append(x >> 24)
    data = bytes(data) * 25
    rows = [{"n": n, "digest": digest(data[:n]).hex()} for n in LENGTHS]
    with open(os.path.join(ROOT, "tests/golden/base/digests.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def check(path):
    """-> list of what disagrees"""
    with open(path, "rb") as f:
        blob = f.read()
    places = struct.unpack_from("<12Q", blob, 0x10)
    section = dict(zip(("header", "directory", "data", "masks", "vocab", "index"),
                       zip(places[::2], places[1::2])))
    part = {k: blob[o:o + n] for k, (o, n) in section.items()}
    header = json.loads(part["header"])
    n, pool = struct.unpack_from("<2Q", part["directory"], 0)
    want = bytearray()
    for i in range(n):
        off, size = struct.unpack_from("<2Q", part["directory"], 16 + 56 * i + 32)
        at = section["data"][0] + off
        want += digest(blob[at:at + size])
    bad = []
    if base64.b64decode(header["caisson.tensor_digests"], validate=True) != bytes(want):
        bad.append("caisson.tensor_digests")
    want = {k: base64.b64encode(digest(part[k])).decode()
            for k in ("directory", "masks", "vocab", "index") if part[k]}
    if header["caisson.section_digests"] != want:
        bad.append("caisson.section_digests")
    return bad


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
        failed += bool(bad)
        print("%s %d - digests of %s%s" % ("not ok" if bad else "ok", i, path, ": " + ", ".join(bad) if bad else ""))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
