# SPDX-License-Identifier: Apache-2.0
"""The oracle of the template tests: transformers 5.24.0 with jinja2 3.1.6, and our own renderer
(tests/tools/template_probe.c) to compare it with."""
import datetime
import json
import subprocess

import jinja2
import transformers
from transformers.utils import chat_template_utils as ctu

assert jinja2.__version__ == "3.1.6", jinja2.__version__
assert transformers.__version__ == "5.24.0", transformers.__version__

NOW = datetime.datetime(2026, 8, 5, 12, 0, 0)  # as in template_probe.c


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


ctu.datetime = FixedClock


def oracle(template, variables):
    """("text", rendered) or ("error", sentence)."""
    try:
        return "text", ctu._compile_jinja_template(template).render(**variables)
    except Exception as e:  # whatever Python raises, we must refuse as well
        return "error", f"{type(e).__name__}: {e}"


class Probe:
    def __init__(self, program):
        self.pipe = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, variables, trusted=None):
        line = json.dumps({"template": template, "vars": variables, "trusted": trusted or {}})
        self.pipe.stdin.write(line.encode() + b"\n")
        self.pipe.stdin.flush()
        return json.loads(self.pipe.stdout.readline())
