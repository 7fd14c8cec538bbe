#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public header compiles alone, as C11 and as C++; the examples build and run."""
import glob
import os
import shutil
import subprocess
import unittest

import tool

INCLUDE = os.path.join(tool.ROOT, "include")
HEADERS = sorted(os.path.relpath(p, INCLUDE)
                 for p in glob.glob(INCLUDE + "/*.h") + glob.glob(INCLUDE + "/caisson/*.h"))


def compile_alone(compiler, language, std, header):
    flags = ["-std=" + std, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I" + INCLUDE,
             "-fsyntax-only", "-x", language, "-"]
    return subprocess.run([compiler, *flags], input=("#include <%s>\ntypedef int nothing;\n" % header).encode(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Headers(tool.Case):
    @unittest.skipUnless(shutil.which("cc"), "no C compiler")
    def test_each_alone_as_c11(self):
        self.assertGreater(len(HEADERS), 6)
        for h in HEADERS:
            p = compile_alone("cc", "c", "c11", h)
            self.assertEqual(p.returncode, 0, p.stdout.decode())

    @unittest.skipUnless(shutil.which("c++"), "no C++ compiler")
    def test_each_alone_as_cpp(self):
        for h in HEADERS:
            for std in ("c++11", "c++20"):
                p = compile_alone("c++", "c++", std, h)
                self.assertEqual(p.returncode, 0, p.stdout.decode())

    def test_the_umbrella_includes_every_header(self):
        text = tool.read(os.path.join(INCLUDE, "caisson.h"), "r")
        for h in HEADERS:
            if h != "caisson.h":
                self.assertIn('#include "%s"' % h, text)


class Examples(tool.Case):
    def example(self, name, *args):
        path = os.path.join(tool.BUILD, "examples", "example_" + name)
        if not os.path.exists(path):
            self.skipTest("examples are not built")
        return subprocess.run([path, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)

    def test_answer(self):
        p = self.example("answer", tool.TINY, "Hello")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn(b"tokens/s", p.stdout)

    def test_logits(self):
        p = self.example("logits", tool.TINY, "Hello")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertGreaterEqual(len(p.stdout.splitlines()), 6)

    def test_inspect(self):
        p = self.example("inspect", tool.TINY)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn(b": valid", p.stdout)
        bad = tool.copy_tiny(self.path("bad.cmf"), flip=5000)
        self.assertEqual(self.example("inspect", bad).returncode, 1)


if __name__ == "__main__":
    tool.main()
