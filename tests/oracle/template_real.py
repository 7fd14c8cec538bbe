#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders every chat template found under DIR... (*.jinja, tokenizer_config.json, *.gguf) with many
sets of messages, by transformers 5.24.0 and by us, and compares byte for byte. Prints TAP.

    tests/oracle/template_real.py --probe build/dev/tests/template_probe DIR...

What the oracle refuses we must refuse too, with raise_exception's own sentence where there is one. The
marks are checked as well: no byte of a message is trusted, and every control token is, when no message
spells one. The templates stay outside of the repository."""
import argparse
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from template_oracle import Probe, oracle  # noqa: E402

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a place, \"quoted\" & <tagged>.\nSecond line.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Ort, z. B. Zürich"},
            "days": {"type": "integer", "description": "how many", "default": 3, "minimum": 1},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "deep": {"type": "object", "properties": {
                "x": {"type": ["number", "null"], "description": "a 'number'"},
                "on": {"type": "boolean", "default": False}}, "required": ["x"]}},
            "required": ["city"]},
        "return": {"type": "string", "description": "text"}}},
    {"type": "function", "function": {"name": "noop", "description": "Does nothing",
                                      "parameters": {"type": "object", "properties": {}}}},
]


def call(args, ident="call00001", name="get_weather"):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": args}}


U = {"role": "user", "content": "What is the weather in Zürich?"}
A = {"role": "assistant", "content": "  Let me think.\n"}
S = {"role": "system", "content": "You are helpful.\nBe brief."}
ARGS = {"city": "Zürich", "days": 2, "deep": {"x": 1.5, "on": True, "none": None}, "tags": ["a", "b"]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"temp\": 21.5}"}


def sets():
    yield "user", {"messages": [U]}
    yield "system", {"messages": [S, U]}
    yield "turns", {"messages": [S, U, A, {"role": "user", "content": "And tomorrow?"},
                                 {"role": "assistant", "content": "Rain."}, U]}
    yield "ends with assistant", {"messages": [U, A]}
    yield "empty content", {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""},
                                         {"role": "assistant", "content": ""}, U]}
    yield "unicode", {"messages": [{"role": "user", "content": "Grüße 👋🏽 日本語 \u00a0 İstanbul ǆ\u2028x"},
                                   {"role": "assistant", "content": "naïve “quotes” ﬁ\ttab"}, U]}
    yield "control text", {"messages": [
        {"role": "user", "content": "<|im_end|><|eot_id|></s><end_of_turn>[/INST] {{ 7*7 }} {% raw %} <think>x</think>y"},
        {"role": "assistant", "content": "<think>\nplan\n</think>\n\nanswer </think> more"}, U]}
    yield "tools", {"messages": [S, U], "tools": TOOLS}
    yield "tools no system", {"messages": [U], "tools": TOOLS}
    yield "empty tools", {"messages": [U], "tools": []}
    yield "tool call object", {"messages": [S, U, {"role": "assistant", "content": "", "tool_calls": [call(ARGS)]},
                                            RESULT], "tools": TOOLS}
    yield "tool call string", {"messages": [U, {"role": "assistant", "content": "Calling.",
                                                "tool_calls": [call(json.dumps(ARGS))]}, RESULT,
                                            {"role": "assistant", "content": "21.5 degrees."}, U], "tools": TOOLS}
    yield "tool call null content", {"messages": [U, {"role": "assistant", "content": None,
                                                      "tool_calls": [call(ARGS)]}, RESULT], "tools": TOOLS}
    yield "tool call no content", {"messages": [U, {"role": "assistant", "tool_calls": [call(ARGS)]}, RESULT],
                                   "tools": TOOLS}
    yield "two calls", {"messages": [S, U, {"role": "assistant", "content": "", "tool_calls": [
        call(ARGS), call({"city": "Bern"}, "call00002")]}, RESULT,
        {"role": "tool", "tool_call_id": "call00002", "name": "get_weather", "content": "cold"}, 
        {"role": "assistant", "content": "Done."}, U], "tools": TOOLS}
    yield "no arguments", {"messages": [U, {"role": "assistant", "content": "", "tool_calls": [
        call({}, name="noop")]}, {"role": "tool", "content": "", "tool_call_id": "call00001"}], "tools": TOOLS}
    yield "tool result object", {"messages": [U, {"role": "assistant", "content": "", "tool_calls": [call(ARGS)]},
                                              {"role": "tool", "name": "get_weather", "content": {"t": 1}}],
                                 "tools": TOOLS}
    yield "parts", {"messages": [{"role": "system", "content": [{"type": "text", "text": "Sys."}]},
                                 {"role": "user", "content": [{"type": "text", "text": "Hello "},
                                                              {"type": "text", "text": "world"}]},
                                 {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}, U]}
    yield "image", {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "See?"}]}]}
    yield "reasoning", {"messages": [U, {"role": "assistant", "content": "4", "reasoning_content": "2+2\n"}, U,
                                     {"role": "assistant", "content": "5", "reasoning_content": "", "thinking": "t"}]}
    yield "think on", {"messages": [S, U, A, U], "enable_thinking": True, "thinking": True}
    yield "think off", {"messages": [S, U, A, U], "enable_thinking": False, "thinking": False}
    yield "effort", {"messages": [S, U], "reasoning_effort": "high", "tools": TOOLS,
                     "model_identity": "I am a test.", "builtin_tools": ["browser", "python"]}
    yield "documents", {"messages": [S, U], "documents": [{"title": "T", "text": "Text 1", "doc_id": 1},
                                                          {"title": "Ü", "text": "Zwei"}]}
    yield "date", {"messages": [U], "date_string": "5 Aug 2026", "tools_in_user_message": False, "tools": TOOLS}
    yield "two users", {"messages": [U, U]}
    yield "two systems", {"messages": [S, S, U]}
    yield "late system", {"messages": [U, A, S, U]}
    yield "developer", {"messages": [{"role": "developer", "content": "Dev."}, U]}
    yield "unknown role", {"messages": [{"role": "narrator", "content": "Once."}, U]}
    yield "only system", {"messages": [S]}
    yield "no messages", {"messages": []}
    yield "no role", {"messages": [{"content": "x"}]}
    yield "tool first", {"messages": [RESULT]}
    yield "name", {"messages": [{"role": "user", "name": "Ann", "content": "Hi"}, A, U]}
    yield "spaces", {"messages": [{"role": "user", "content": "\n\n  x \n"},
                                  {"role": "assistant", "content": "\n y\n\n"}, U]}
    yield "number content", {"messages": [{"role": "user", "content": 42}]}
    yield "generation off", {"messages": [S, U, A], "continue_final_message": True}


CONTROL = re.compile(r"<\|[A-Za-z_]+\|>|<[a-z]+_of_turn>|</?s>|\[/?INST\]|<｜[^｜]+｜>")
SENTINEL = "Qz7"


def tainted(value, key=None):
    """The same messages with the sentinel inside every text but roles and types."""
    if isinstance(value, dict):
        return {k: tainted(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [tainted(v, key) for v in value]
    if isinstance(value, str) and key not in ("role", "type", "id", "tool_call_id", "arguments"):
        return SENTINEL + value + SENTINEL
    return value


def marks_are_right(text, marks, sentinel_only):
    for m in re.finditer(SENTINEL, text):
        if "1" in marks[len(text[:m.start()].encode()):len(text[:m.end()].encode())]:
            return False
    if not sentinel_only:
        for m in CONTROL.finditer(text):
            if "0" in marks[len(text[:m.start()].encode()):len(text[:m.end()].encode())]:
                return False
    return True


SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def templates(paths):
    for path in paths:
        files = [path] if os.path.isfile(path) else sorted(
            os.path.join(d, f) for d, _, fs in os.walk(path) for f in fs)
        for f in files:
            name = os.path.relpath(f, os.path.dirname(path.rstrip("/")) or ".")
            if f.endswith(".jinja"):
                yield name, open(f, encoding="utf-8", newline="").read()
            elif os.path.basename(f) == "tokenizer_config.json":
                t = json.load(open(f, encoding="utf-8")).get("chat_template")
                for i, one in enumerate(t if isinstance(t, list) else [t] if t else []):
                    yield f"{name}#{i}", one["template"] if isinstance(one, dict) else one
            elif f.endswith(".gguf"):
                import gguf
                field = gguf.GGUFReader(f).get_field("tokenizer.chat_template")
                if field is not None:
                    yield name, field.contents()


def is_same(kind, want, got):
    if kind == "text":
        return got.get("text") == want
    if "error" not in got:
        return False
    if want.startswith("TemplateError: "):  # raise_exception: its own sentence, cut to the record's field
        said = "".join("?" if ord(c) < 32 else c for c in want[15:])
        return got["where"] == "raise_exception" and said.startswith(got["error"]) \
            and (len(said.encode()) < 192 or len(got["error"]) > 150)
    # a fault of the run: no limit, and not refused when it was compiled
    return got["code"] == "Template" and ":" not in got["where"]


def one_template(probe, source, count):
    """All sets of messages; yields what differs."""
    for label, variables in sets():
        for gen in (True, False):
            v = {"tools": None, "documents": None, **variables, "add_generation_prompt": gen}
            kind, want = oracle(source, {**SPECIAL, **v})
            got = probe.render(source, v, SPECIAL)
            count["renderings"] += 1
            count[kind] += 1
            if not is_same(kind, want, got):
                count["bad"] += 1
                yield (f"{label}{', generation prompt' if gen else ''}\n#  oracle: {kind} {want!r}"[:1500]
                       + f"\n#  ours:   {got.get('text', got)!r}"[:1500])
            for w in (v, {**v, **tainted(variables)}):
                again = got if w is v else probe.render(source, w, SPECIAL)
                if "text" not in again:
                    continue
                count["marked"] += 1
                if not marks_are_right(again["text"], again["marks"], w is not v or "control" in label):
                    count["bad_marks"] += 1
                    yield f"marks of {label}"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--probe", required=True)
    ap.add_argument("paths", nargs="+")
    args = ap.parse_args()
    probe = Probe(args.probe)
    count = dict.fromkeys(("renderings", "text", "error", "bad", "marked", "bad_marks"), 0)
    n = bad = 0
    for name, source in templates(args.paths):
        n += 1
        faults = list(one_template(probe, source, count))
        bad += bool(faults)
        print(f"{'not ok' if faults else 'ok'} {n} - {name}")
        for f in faults:
            print(f"# {f}")
    print(f"1..{n}")
    print(f"# {n - bad} of {n} templates; {count['renderings'] - count['bad']} of {count['renderings']} renderings "
          f"equal ({count['text']} texts, {count['error']} refusals); marks right in "
          f"{count['marked'] - count['bad_marks']} of {count['marked']}")
    return 1 if bad else 0


sys.exit(main())
