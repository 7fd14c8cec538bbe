#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our vector quantiser beside that of the format's converter, on the same matrix.

    PYTHON bench/peer/vq_encode.py PEER_DIR build/dev/bench/bench_vq_encode [--threads N]

PEER_DIR: a checkout of sqliteai/warp 0.6.8 with `make libwastevq.so` done (its own fast path; without it
only torch is measured). PYTHON has torch and numpy. Prints one JSON object: seconds of the codebooks and of
coding a 1024 x 2304 matrix (the gate of a Kimi-Linear expert) with three stages of 256, best of three, and
the relative error of what was coded, codebooks and scales as binary16.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch

ROWS, COLS, STAGES = 1024, 2304, 3


def best(fn):
    times = []
    for _ in range(3):
        t0 = time.time()
        out = fn()
        times.append(time.time() - t0)
    return min(times), out


def error(w, books, index, scale):
    q = sum(b.half().float()[index[s].long()] for s, b in enumerate(books)).view(ROWS, COLS)
    return float((q * scale.float()[:, None] - w).norm() / w.norm())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("peer")
    p.add_argument("bench")
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    bench = os.path.abspath(a.bench)
    sys.path.insert(0, os.path.join(os.path.abspath(a.peer), "tools"))
    import convert as peer
    torch.set_num_threads(a.threads)
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    torch.manual_seed(1)
    w = torch.randn(ROWS, COLS) * torch.exp(0.3 * torch.randn(ROWS, 1)) * 0.02
    w = w * (1 + 0.5 * torch.randn(ROWS, COLS).abs())
    x = (w / w.abs().amax(-1, keepdim=True)).reshape(-1, 8)
    dev, out = torch.device("cpu"), {"threads": a.threads}
    with tempfile.NamedTemporaryFile(suffix=".f32") as f:
        w.numpy().tofile(f.name)
        r = subprocess.run([bench, "--threads", str(a.threads), f.name], stdout=subprocess.PIPE, check=True)
        out["ours"] = json.loads(r.stdout)
    t0 = time.time()
    books = peer.train_codebooks(x, STAGES, dev)
    out["peer_train_s"] = round(time.time() - t0, 3)
    for name, native in (("native", None), ("torch", False)):
        peer._VQ = native
        if native is None and peer._load_vq() is None:
            continue
        seconds, (index, scale) = best(lambda: peer.quantize_vq(w, books, dev))
        out["peer_" + name] = {"encode_s": round(seconds, 4), "relative_error": error(w, books, index, scale),
                               "ours_is_faster": round(seconds / out["ours"]["encode_s"], 2)}
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
