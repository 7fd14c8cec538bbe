# SPDX-License-Identifier: Apache-2.0
"""Prints the polynomial coefficients of src/kernels/vec_template.h (exp, tanh).

Weighted least squares on Chebyshev nodes, which is within a few percent of the minimax polynomial
at these degrees. Needs numpy only (numpy 1.26 / 2.x give the same digits).
usage: math_poly.py
"""
import math
import numpy as np


def fit(f, weight, lo, hi, degree):
    n = 4001
    k = np.arange(n)
    x = (lo + hi) / 2 + (hi - lo) / 2 * np.cos(np.pi * (2 * k + 1) / (2 * n))
    x = x[np.abs(x) > 1e-4].astype(np.longdouble)
    y = f(x)
    w = weight(x)
    scale = np.max(np.abs(x))
    a = np.stack([(x / scale) ** i * w for i in range(degree + 1)], axis=1).astype(np.float64)
    c, *_ = np.linalg.lstsq(a, (y * w).astype(np.float64), rcond=None)
    return [float(c[i] / float(scale) ** i) for i in range(degree + 1)]


def show(name, c):
    print(name)
    for v in c:
        print("    %.9ef, /* %s */" % (np.float32(v), float(np.float32(v)).hex()))


h = math.log(2) / 2 * 1.01
# exp(r) = 1 + r + r^2 P(r); relative error of exp = r^2 * dP / exp(r)
show("exp", fit(lambda r: (np.exp(r) - 1 - r) / (r * r), lambda r: r * r / np.exp(r), -h, h, 4))
# tanh(x) = x + x z P(z), z = x^2, |x| <= 0.625
show("tanh", fit(lambda z: (np.tanh(np.sqrt(z)) / np.sqrt(z) - 1) / z, lambda z: z, 1e-6, 0.625**2, 4))
