# SPDX-License-Identifier: Apache-2.0
"""`python -m caisson_cmf COMMAND FILE`: 0 ok, 1 refused or invalid, 2 usage."""
from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import List, Optional

import numpy as np

from .envelope import FEATURES
from .errors import CmfError
from .hash64 import hex64
from .model import Located, Model
from .verify import verify


def main(argv: Optional[List[str]] = None) -> int:
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except CmfError as e:
        print("error: %s: %s" % (e.code, e), file=sys.stderr)
    except OSError as e:
        print("error: %s" % e, file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m caisson_cmf",
                                     description="Reads CMF v2 files.")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, run, help_: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help_, description=help_)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="one JSON value on standard output")
        return sub

    info = command("info", _info, "Say what a model is: arch, tensors, masks, skills, shards.")
    info.add_argument("file")
    check = command("verify", _verify, "Check everything in each file; shards one by one.")
    check.add_argument("file", nargs="+")
    check.add_argument("--key", help="public key (64 hex digits) that must have signed")
    listing = command("list", _list, "List the tensors of a model.")
    listing.add_argument("file")
    tensor = command("tensor", _tensor, "Show one tensor, decoded to float32.")
    tensor.add_argument("file")
    tensor.add_argument("name")
    tensor.add_argument("--skill", help="as this skill sees it")
    tensor.add_argument("--npy", metavar="OUT", help="write the values")
    tensor.add_argument("--raw", metavar="OUT", help="write the payload's bytes")
    return parser


def _describe(name: str, tensor: Located) -> dict:
    """The keys of `caisson tensor FILE --json`; shape and sizes in elements and bytes."""
    entry = tensor.entry
    return {"name": name, "dtype": tensor.dtype, "shape": list(tensor.shape),
            "offset": tensor.file.payload_offset(entry), "bytes": entry.nbytes,
            "hash": hex64(entry.hash)}


def _info(args) -> int:
    model = Model(args.file)
    env = model.files[0].envelope
    by_dtype = Counter()
    bytes_by_dtype = Counter()
    for tensor in model.tensors.values():
        by_dtype[tensor.dtype] += 1
        bytes_by_dtype[tensor.dtype] += tensor.entry.nbytes
    facts = {
        "files": [file.path for file in model.files],
        "features": [name for bit, name in enumerate(FEATURES) if env.has(bit)],
        "quant_type": model.header["quant_type"],
        "arch": {key: value for key, value in model.arch.items() if value is not None},
        "tensors": {name: {"count": by_dtype[name], "bytes": bytes_by_dtype[name]}
                    for name in sorted(by_dtype)},
        "parameters": sum(t.entry.elements for t in model.tensors.values() if len(t.shape) > 1),
        "masks": [mask.name for mask in model.masks.masks] if model.masks else [],
        "default_task": model.masks.default_task if model.masks else None,
        "skills": {skill.id: len(skill.replaces) for skill in model.skills.values()},
        "is_standalone_skill": model.is_standalone_skill,
        "vocab_bytes": len(model.files[0].section("vocab")),
        "index_entries": len(model.index or []),
        "provenance": model.header["provenance"],
    }
    if args.json:
        print(json.dumps(facts, ensure_ascii=False))
        return 0
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        print("%-20s %s" % (key, text))
    return 0


def _verify(args) -> int:
    results = [verify(path, key=args.key) for path in args.file]
    if args.json:
        print(json.dumps([result.as_json() for result in results], ensure_ascii=False))
    else:
        for result in results:
            for problem in result.problems:
                print("%s: %s" % (problem.code, problem))
            for note in result.notes:
                print("note: %s: %s" % (result.file, note))
            print("%s: %s" % (result.file, "OK" if result.valid else
                              "%d problems" % len(result.problems)))
    return 0 if all(result.valid for result in results) else 1


def _list(args) -> int:
    model = Model(args.file)
    rows = [_describe(name, tensor) for name, tensor in model.tensors.items()]
    if args.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    for row in rows:
        print("%s  %-8s  %-16s  %10d  %s" % (row["hash"], row["dtype"],
                                           "x".join(map(str, row["shape"])), row["bytes"],
                                           row["name"]))
    return 0


def _tensor(args) -> int:
    tensor = Model(args.file).find(args.name, args.skill)
    values = tensor.values() if args.npy or not args.raw else None
    if args.npy:
        with open(args.npy, "wb") as f:
            np.save(f, values)
    if args.raw:
        with open(args.raw, "wb") as f:
            f.write(tensor.payload())
    row = _describe(tensor.entry.name, tensor)
    if values is not None:
        finite = values[np.isfinite(values)]
        row["min"] = float(finite.min()) if finite.size else None
        row["max"] = float(finite.max()) if finite.size else None
        row["first"] = [float(v) if np.isfinite(v) else None for v in values.reshape(-1)[:8]]
    if args.json:
        print(json.dumps(row, ensure_ascii=False))
        return 0
    for key, value in row.items():
        print("%-8s %s" % (key, value))
    return 0
