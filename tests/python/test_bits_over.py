#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quantize --bits-over: widths of vbit rows, chosen again with numpy from the format's description
(facts 4.6), against those in the files that the tool writes."""
import os
import re
import subprocess
import unittest

import support  # first: without numpy it skips the whole program
import numpy as np

from support import FILES, TINY
from caisson_cmf import Model

TOOL = os.path.join(support.BUILD, "caisson")
LEVELS = np.array([3, 4, 5, 6, 8])
NUMBERS = {"experts": r"experts\.\d+", "layers": r"(experts|layers)\.\d+"}


def snap(want):
    """The nearest width; np.argmin takes the first, the smaller, of two that are equally near."""
    return LEVELS[np.abs(want[:, None] - LEVELS).argmin(axis=1)]


def row_levels(matrix):
    return np.log2(np.maximum(np.abs(matrix).max(axis=1), 1e-12)).astype(np.float64)


def fits(got, want):
    """Equal to the snapped `want`, or either side of a tie: bisection ends on one."""
    return ((got == snap(want - 1e-5)) | (got == snap(want + 1e-5))).all()


def family_bits(matrices, mean_bits):
    """What each row of matrices of one shape that share mean_bits wants, before it is snapped."""
    levels = [row_levels(m) for m in matrices]
    raw = np.clip([a.mean() - np.mean([b.mean() for b in levels]) for a in levels], -2.5, 2.5)
    raw -= raw.mean()

    def bits(delta):
        return [mean_bits + a - a.mean() + r + delta for a, r in zip(levels, raw)]

    lo, hi = -3.0, 3.0
    for _ in range(40):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if snap(np.concatenate(bits(mid))).mean() < mean_bits else (lo, mid)
    return bits((lo + hi) / 2)


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class BitsOver(support.Case):
    def quantize(self, source, dtype, *options):
        path = self.scratch("out.cmf")
        subprocess.run([TOOL, "quantize", source, "-o", path, "-f", "--quant", dtype, *options],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=100)
        return Model(path)

    def check(self, source, over, bits, dtype):
        before = Model(source)
        after = self.quantize(source, dtype, "--bits", str(bits), "--bits-over", over)
        families = {}
        for name, tensor in after.tensors.items():
            if tensor.dtype == dtype:
                families.setdefault(re.sub(NUMBERS[over], "", name), []).append(name)
        self.assertTrue(any(len(names) > 1 for names in families.values()))
        for names in families.values():
            if len(names) == 1:  # by itself: no common shift
                level = row_levels(before.values(names[0]))
                want = [bits + level - level.mean()]
            else:
                want = family_bits([before.values(n) for n in names], bits)
            for name, rows in zip(names, want):
                got = after.tensors[name].payload()[:len(rows)]
                self.assertTrue(fits(got, rows), "%s: %s, not %s" % (name, got, rows))
        return families, after

    def test_experts_of_a_layer_share(self):
        for dtype in ("vbit", "vbit_ro"):
            for bits in (3.5, 4.25, 6):
                self.check(os.path.join(FILES, "tiny-moe.cmf"), "experts", bits, dtype)

    def test_layers_share(self):
        families, after = self.check(TINY, "layers", 4.25, "vbit")
        for names in families.values():
            if len(names) > 1:
                rows = [after.tensors[n].payload()[:after.tensors[n].shape[0]] for n in names]
                self.assertAlmostEqual(np.concatenate(rows).mean(), 4.25, delta=0.1)
        self.check(os.path.join(FILES, "tiny-moe.cmf"), "layers", 5, "vbit")

    def test_a_loud_expert_gets_more(self):
        source = os.path.join(FILES, "tiny-moe.cmf")
        model = Model(source)
        name = "model.layers.1.mlp.experts.%d.gate_proj.weight"
        loud = [np.abs(model.values(name % e)).max(axis=1).mean() for e in range(11)]
        after = self.quantize(source, "vbit", "--bits-over", "experts")
        widths = [after.tensors[name % e].payload()[:32].mean() for e in range(11)]
        self.assertGreaterEqual(widths[int(np.argmax(loud))], widths[int(np.argmin(loud))])


if __name__ == "__main__":
    support.main()
