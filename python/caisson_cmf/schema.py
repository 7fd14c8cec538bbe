# SPDX-License-Identifier: Apache-2.0
"""Checked JSON: what a key may hold, said in tables.

A check is a function (value, path) -> value that raises `Mismatch`. Unknown keys are ignored (the
format grows by adding keys); a known key given twice is an error, and so is anything behind the
JSON value. Null stands for a missing value only where a field's default is None.
"""
from __future__ import annotations

import json
import re
import struct
from typing import Callable, Dict, NamedTuple, Sequence

MAX_DEPTH = 64  # nested arrays and objects, as docs/cmf.md
REQUIRED = object()  # a default that says that the key must be there


class Mismatch(Exception):
    """The message names the key by its path, such as `header.arch.moe.top_k`."""


class Fields(dict):
    """A JSON object that remembers which keys came twice."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.twice = set()
        if len(self) != len(pairs):
            seen = set()
            for key, _ in pairs:
                (self.twice if key in seen else seen).add(key)


class Field(NamedTuple):
    name: str
    check: Callable
    default: object = REQUIRED


def parse_json(data: bytes, path: str):
    """One JSON value (RFC 8259) in UTF-8, nothing behind it. Objects come back as `Fields`."""
    try:
        text = bytes(data).decode("utf-8")
    except UnicodeDecodeError as e:
        raise Mismatch("%s: not UTF-8 at byte %d" % (path, e.start)) from None
    if _depth(text) > MAX_DEPTH:
        raise Mismatch("%s: nested deeper than %d" % (path, MAX_DEPTH))
    try:
        value = json.loads(text, object_pairs_hook=Fields, parse_constant=_no_constant,
                           parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # finds half a surrogate pair
    except UnicodeEncodeError:
        raise Mismatch("%s: half a surrogate pair" % path) from None
    except (ValueError, RecursionError) as e:
        raise Mismatch("%s: %s" % (path, e)) from None
    return value


STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _depth(text: str) -> int:
    """Deepest nesting of brackets outside of strings."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _no_constant(name):
    raise ValueError("%s is not JSON" % name)


def _finite(digits):
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError("number %s is too large" % digits)
    return value


# ---- checks ----
def anything(value, path):
    return value


def text(value, path):
    if not isinstance(value, str):
        raise Mismatch("%s: want a string, got %s" % (path, _kind(value)))
    return value


def flag(value, path):
    if not isinstance(value, bool):
        raise Mismatch("%s: want true or false, got %s" % (path, _kind(value)))
    return value


def unsigned(bits: int):
    def check(value, path):
        if isinstance(value, bool) or not isinstance(value, int):
            raise Mismatch("%s: want a whole number, got %s" % (path, _kind(value)))
        if not 0 <= value < 1 << bits:
            raise Mismatch("%s: want 0 to 2^%d - 1, got %d" % (path, bits, value))
        return value
    return check


u32, u64 = unsigned(32), unsigned(64)


def f64(value, path):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mismatch("%s: want a number, got %s" % (path, _kind(value)))
    try:
        return float(value)
    except OverflowError:
        raise Mismatch("%s: number is too large" % path) from None


def f32(value, path):
    """The value of the nearest float32."""
    try:
        return struct.unpack("<f", struct.pack("<f", f64(value, path)))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def one_of(*values: str):
    def check(value, path):
        if text(value, path) not in values:
            raise Mismatch("%s: want one of %s, got %r" % (path, " ".join(values), value))
        return value
    return check


def array(item: Callable):
    def check(value, path):
        if not isinstance(value, list):
            raise Mismatch("%s: want an array, got %s" % (path, _kind(value)))
        return [item(v, "%s[%d]" % (path, i)) for i, v in enumerate(value)]
    return check


def record(fields: Sequence[Field]):
    """An object; the result holds every known key, with its default where it was missing."""
    def check(value, path) -> Dict[str, object]:
        if not isinstance(value, dict):
            raise Mismatch("%s: want an object, got %s" % (path, _kind(value)))
        result = {}
        for field in fields:
            where = "%s.%s" % (path, field.name)
            if field.name in getattr(value, "twice", ()):
                raise Mismatch("%s: given twice" % where)
            if field.name not in value:
                if field.default is REQUIRED:
                    raise Mismatch("%s: missing" % where)
                result[field.name] = _fresh(field.default)
            elif value[field.name] is None and field.default is None:
                result[field.name] = None
            else:
                result[field.name] = field.check(value[field.name], where)
        return result
    return check


def _fresh(default):
    return list(default) if isinstance(default, list) else default


def _kind(value) -> str:
    names = {type(None): "null", bool: "a truth value", int: "a whole number", float: "a fraction",
             str: "a string", list: "an array"}
    return names.get(type(value), "an object")
