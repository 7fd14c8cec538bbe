#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The answers of the existing engine (0.6.8) for the containers of tests/golden/warp, out of the README
that came with them, as tests/golden/warp/answers.json.

usage: warp_answers.py ../shared/data/warp/README.md
"""
import json
import pathlib
import re
import sys

NUMBER = r"-?\d+\.\d+"


def main():
    text = pathlib.Path(sys.argv[1]).read_text()
    answers = {}
    for name, body in re.findall(r"^### (\S+)\.waste\n(.*?)(?=^##)", text, re.M | re.S):
        lines = dict(re.findall(r"^\* (logits|sum|greedy|after 8)[: ](.*)$", body, re.M))
        total, squares = re.findall(NUMBER, lines["sum"])
        answers[name] = {
            "logits": [float(x) for x in re.findall(NUMBER, lines["logits"])],
            "sum": float(total),
            "sumsq": float(squares),
            "greedy": [int(x) for x in re.findall(r"(\d+) \(", lines["greedy"])],
            "after": [float(x) for x in re.findall(NUMBER, lines["after 8"])],
        }
    assert len(answers) == 9
    out = pathlib.Path(__file__).parent.parent / "golden/warp/answers.json"
    out.write_text(json.dumps(answers, indent=1) + "\n")


main()
