# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python reader share. Each test_*.py is called with the build directory
(only test_against_tool.py uses it) and ends with support.main().

CAISSON_CMF_DATA=DIR takes the golden data from another place, such as the unabridged set.
"""
import json
import os
import shutil
import struct
import sys
import tempfile
import unittest

try:
    import numpy as np
except ImportError:
    print("1..1\nok 1 - all # SKIP needs the Python module numpy (Debian: python3-numpy)")
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "dev")
DATA = os.environ.get("CAISSON_CMF_DATA") or os.path.join(ROOT, "tests", "golden", "cmf")
FILES, BAD, CODEC = (os.path.join(DATA, name) for name in ("files", "bad", "codec"))
SHAPES = os.path.join(ROOT, "tests", "golden", "cmf", "shapes")
TINY = os.path.join(FILES, "tiny-f32.cmf")

sys.path.insert(0, os.path.join(ROOT, "python"))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def read_json(path):
    return json.loads(read(path).decode("utf-8"))


def same_bits(a, b):
    """Equal float32 bits; any NaN equals any NaN."""
    a, b = a.reshape(-1), b.reshape(-1)
    same = a.view(np.uint32) == b.view(np.uint32)
    return a.shape == b.shape and bool((same | (np.isnan(a) & np.isnan(b))).all())


class SafeTensors:
    """The few lines of safetensors that golden data needs: name -> array, and the metadata."""

    TYPES = {"F32": "<f4", "U8": "u1"}

    def __init__(self, path):
        raw = read(path)
        (size,) = struct.unpack_from("<Q", raw, 0)
        self.header = json.loads(raw[8 : 8 + size].decode("utf-8"))
        self.metadata = self.header.pop("__metadata__")
        self.body = np.frombuffer(raw, dtype=np.uint8, offset=8 + size)

    def __getitem__(self, name):
        start, end = self.header[name]["data_offsets"]
        return self.body[start:end].copy().view(self.TYPES[self.header[name]["dtype"]])


class Case(unittest.TestCase):
    def scratch(self, name=""):
        """A path in a folder that goes with the test."""
        if not hasattr(self, "_scratch"):
            self._scratch = tempfile.mkdtemp(prefix="caisson-python-")
            self.addCleanup(shutil.rmtree, self._scratch, ignore_errors=True)
        return os.path.join(self._scratch, name)

    def write(self, name, data):
        path = self.scratch(name)
        with open(path, "wb") as f:
            f.write(data)
        return path


def cases(of, function):
    """Class decorator: one named test for each (name, argument) of `of`."""
    def add(cls):
        for name, argument in of:
            def test(self, argument=argument):
                function(self, argument)
            word = "test_" + "".join(c if c.isalnum() else "_" for c in name)
            assert not hasattr(cls, word), word
            test.__name__ = word
            setattr(cls, word, test)
        return cls
    return add


def main():
    sys.argv = sys.argv[:1]
    unittest.main(module="__main__", verbosity=2)
