# SPDX-License-Identifier: Apache-2.0
"""What the tests of the tool share: running it, the golden files, a temporary folder.

Each test_*.py is called with the build directory and ends with tool.main().
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build", "dev")
TOOL = os.path.join(BUILD, "caisson")
FILES = os.path.join(ROOT, "tests", "golden", "cmf", "files")
BAD = os.path.join(ROOT, "tests", "golden", "cmf", "bad")
TINY = os.path.join(FILES, "tiny-f32.cmf")

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

# A shell starts what it puts into the background with SIGINT ignored, and the tool keeps it so: the
# tests that interrupt it start from the default.
signal.signal(signal.SIGINT, signal.default_int_handler)


def read(path, mode="rb"):
    with open(path, mode) as f:
        return f.read()


class Result:
    def __init__(self, p):
        self.rc = p.returncode
        self.raw = p.stdout
        self.out = p.stdout.decode("utf-8", "replace")
        self.err = p.stderr.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.raw.decode("utf-8"))


def env(**more):
    e = dict(os.environ, LC_ALL="C.UTF-8", TERM="xterm")
    e.pop("NO_COLOR", None)
    e.update(more)
    return e


def run(*args, stdin=b"", timeout=100, cwd=None, environ=None, limits=()):
    """Runs caisson ARGS; stdin is bytes, or None for an empty terminal-less input; limits are pairs
    of resource.RLIMIT_* and a size."""
    def limit():
        for what, size in limits:
            resource.setrlimit(what, (size, size))
    p = subprocess.run([TOOL, *[str(a) for a in args]], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=timeout, cwd=cwd, env=environ or env(),
                       preexec_fn=limit if limits else None)
    return Result(p)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="caisson-cli-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def ok(self, *args, **kw):
        r = run(*args, **kw)
        self.assertEqual(r.rc, OK, "%s\n%s%s" % (" ".join(map(str, args)), r.out[-2000:], r.err[-2000:]))
        return r

    def fails(self, rc, *args, **kw):
        """Exit code rc and something said on standard error."""
        r = run(*args, **kw)
        self.assertEqual(r.rc, rc, "%s\n%s%s" % (" ".join(map(str, args)), r.out[-2000:], r.err[-2000:]))
        self.assertTrue(r.err.strip() or r.out.strip(), "failed without a word")
        return r


def copy_tiny(dst, size=None, flip=None):
    blob = bytearray(read(TINY))
    if flip is not None:
        blob[flip] ^= 0x40
    with open(dst, "wb") as f:
        f.write(blob[:size])
    return dst


def main():
    sys.argv = sys.argv[:1]
    if not os.access(TOOL, os.X_OK):
        print("not ok 1 - %s is not built" % TOOL)
        sys.exit(1)
    unittest.main(module="__main__", verbosity=2)
