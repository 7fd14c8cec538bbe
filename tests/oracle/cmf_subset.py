# SPDX-License-Identifier: Apache-2.0
"""Copies what the tests need of the CMF golden data (made with the format's reference, see its own
README) into tests/golden/cmf/. The one large case of each codec file (96 x 256) is left out.

usage: python3 tests/oracle/cmf_subset.py DATA_DIR     (stdlib only)
"""
import json
import pathlib
import shutil
import struct
import sys

CODECS = "f32 f16 bf16 q8_row q8_2f q4_block q4_tiled q4tp q2tp vbit vbit_ro q1 q1s q1t".split()
LARGE = 16384  # bytes of input of one case


def subset(src, dst):
    raw = src.read_bytes()
    (k,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8 : 8 + k])
    body = raw[8 + k :]
    meta = head.pop("__metadata__")
    cases = []
    for c in json.loads(meta["cases"]):
        a, b = head[c + ".decoded"]["data_offsets"]
        if b - a <= LARGE:
            cases.append(c)
    out, blob = {}, b""
    out["__metadata__"] = {"cases": json.dumps(cases)}
    for c in cases:
        for part in ("shape", "desc", "params", "hash64"):
            if c + "." + part in meta:
                out["__metadata__"][c + "." + part] = meta[c + "." + part]
        for part in (".input", ".act_rms", ".encoded", ".decoded"):
            if c + part in head:
                t = head[c + part]
                a, b = t["data_offsets"]
                blob += b"\0" * (-len(blob) % 4)  # floats stay aligned
                t["data_offsets"] = [len(blob), len(blob) + b - a]
                blob += body[a:b]
                out[c + part] = t
    text = json.dumps(out, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    dst.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def main():
    data = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).resolve().parent.parent / "golden" / "cmf"
    (here / "codec").mkdir(parents=True, exist_ok=True)
    for name in CODECS:
        subset(data / "codec" / (name + ".safetensors"), here / "codec" / (name + ".safetensors"))
    shutil.copyfile(data / "codec" / "hash64.json", here / "codec" / "hash64.json")
    for folder in ("files", "bad", "bad/hostile", "bad/shards"):
        (here / folder).mkdir(parents=True, exist_ok=True)
        for f in sorted((data / folder).iterdir()):
            if f.is_file():
                shutil.copyfile(f, here / folder / f.name)


main()
