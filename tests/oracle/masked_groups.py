#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Routing by groups under an expert mask, worked out naively in f64. Made with numpy 2.4.6:
    python tests/oracle/masked_groups.py > tests/golden/route/masked_groups.json

docs/cmf.md, "Experts in groups under a mask", is what this follows: groups of sigmoid scores by their two best
(DeepSeek-V3), of softmax scores by their best (V2). [{"n_group", "topk_group", "top_k", "norm", "sigmoid",
"logits": [n], "bias": [n], "on": [n of 0 and 1], "picks": [[id, weight], ...]}]
"""
import json

import numpy as np


def route(c):
    z = np.array(c["logits"])
    weight = 1 / (1 + np.exp(-z)) if c["sigmoid"] else np.exp(z) * c["on"] / np.sum(np.exp(z) * c["on"])
    score = weight + np.array(c["bias"])
    n, size = len(score), len(score) // c["n_group"]
    groups = [[i for i in range(g, g + size) if c["on"][i]] for g in range(0, n, size)]
    best = sorted((g for g in groups if g), key=lambda g: -sum(sorted(score[g])[-2 if c["sigmoid"] else -1:]))
    k = min(c["top_k"], sum(c["on"]))
    open_to = []
    for taken, group in enumerate(best):
        if taken >= c["topk_group"] and len(open_to) >= k:
            break
        open_to += group
    picks = sorted(sorted(open_to, key=lambda i: -score[i])[:k])
    total = weight[picks].sum() if c["norm"] and (k > 1 or not c["sigmoid"]) else 1.0
    return [[i, round(float(weight[i] / total), 9)] for i in picks]


def main():
    rng = np.random.default_rng(7)
    cases = []
    for share in (1.0, 0.6, 0.3, 0.15):
        for n, n_group, topk_group, top_k in ((8, 4, 2, 3), (16, 4, 1, 4), (32, 8, 3, 6), (24, 8, 2, 5)):
            for norm in (False, True):
                on = rng.random(n) < share
                on[rng.integers(n)] = True
                c = dict(n_group=n_group, topk_group=topk_group, top_k=top_k, norm=norm, sigmoid=True,
                         logits=rng.normal(0, 2, n).astype(np.float32).round(4).tolist(),
                         bias=rng.normal(0, 0.3, n).astype(np.float32).round(4).tolist(),
                         on=[int(x) for x in on])
                for key in ("logits", "bias"):
                    c[key] = [round(x, 4) for x in c[key]]
                cases.append(dict(c, picks=route(c)))
    cases += [dict(c, picks=route(c)) for c in (dict(c, sigmoid=False, bias=[0] * len(c["bias"])) for c in cases[:32])]
    print("[" + ",\n".join(json.dumps(c) for c in cases) + "]")


if __name__ == "__main__":
    main()
