# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/cli/render.json: what apply_chat_template of transformers 5.24.0 (jinja2 3.1.6)
hands to a template and makes of it, for the tokenizer of tests/golden/cmf/files/tiny-f32.cmf with
several tokenizer_config.json files. Run: python tests/oracle/cli_render.py
"""
import json
import os
import struct
import tempfile

import jinja2
import transformers

assert transformers.__version__ == "5.24.0" and jinja2.__version__ == "3.1.6"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
blob = open(os.path.join(ROOT, "golden", "cmf", "files", "tiny-f32.cmf"), "rb").read()
off = struct.unpack_from("<12Q", blob, 0x10)
TOKENIZER = blob[off[8]:off[8] + off[9]]

# Every variable of the set that transformers defines, then what became of the messages.
SHOW = (
    "{% for v in [bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token] %}"
    "{{ v is defined }}:{{ v }};{% endfor %}"
    "{{ tools is defined }},{{ tools is none }},{{ documents is none }},{{ add_generation_prompt }},"
    "{{ enable_thinking is defined }}\n{% for m in messages %}{{ m | tojson }}\n{% endfor %}")
# The shape of templates that ask for tools with `is not none`, and index them.
TOOLS = (
    "{{ bos_token }}{% if tools is not none %}{{ tools[0].function.name }}/{{ tools | length }}{% endif %}"
    "{% if documents is not none %}{% for d in documents %}[{{ d.title }}]{% endfor %}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is defined %}{{ m.content }}{% else %}-{% endif %}"
    "{% if m.tool_calls is defined %}{{ m.tool_calls | length }}{% endif %}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")

# The tiny model's eos ids are 340 <|endoftext|> and 342 <|im_end|>: eos_token is the later one.
CONFIGS = {
    "chat": {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
             "added_tokens_decoder": {}},
    "objects": {"bos_token": {"__type": "AddedToken", "content": "<|im_start|>", "lstrip": False,
                              "normalized": False, "rstrip": False, "single_word": False, "special": True},
                "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "added_tokens_decoder": {}},
    "older": {"eos_token": "<|endoftext|>"},  # with a special_tokens_map.json beside it
}
OLDER_MAP = {"eos_token": "<|im_end|>", "bos_token": {"content": "<|im_start|>", "lstrip": False,
                                                      "normalized": False, "rstrip": False, "single_word": False}}

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "Hi."}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {
    "name": "now", "arguments": {}}}]}
REQUESTS = [
    {"messages": [USER]},
    {"messages": [USER], "tools": None, "documents": None},
    {"messages": [USER], "tools": [], "add_generation_prompt": False},
    {"messages": [USER, CALL, {"role": "tool", "content": "noon", "name": None}], "tools": [TOOL]},
    {"messages": [USER], "documents": [{"title": "A", "text": "a"}, {"title": "B", "text": "b"}]},
    {"messages": [USER, {"role": "assistant", "content": "x", "reasoning": "because"}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "x", "reasoning_content": "because",
                         "thinking": None, "tool_calls": None}]},
    {"messages": [{"role": "assistant", "thinking": "why", "reasoning_content": "how", "content": "x"}]},
    {"messages": [USER], "bos_token": "[B]", "enable_thinking": False},
    {"messages": ["Hi."]},
    {"messages": [USER], "tools": ["now"]},
    {"messages": [USER], "documents": ["text"]},
]

cases = []
for name, config in CONFIGS.items():
    with tempfile.TemporaryDirectory() as d:
        def put(file, value):
            with open(os.path.join(d, file), "wb") as f:
                f.write(value if isinstance(value, bytes) else json.dumps(value).encode())
        put("tokenizer.json", TOKENIZER)
        put("tokenizer_config.json", dict(config, tokenizer_class="PreTrainedTokenizerFast"))
        if name == "older":
            put("special_tokens_map.json", OLDER_MAP)
        tok = transformers.PreTrainedTokenizerFast.from_pretrained(d)
        for template in (SHOW, TOOLS):
            for request in REQUESTS:
                kwargs = {"add_generation_prompt": True, **request}
                try:
                    text = tok.apply_chat_template(kwargs.pop("messages"), chat_template=template,
                                                   tokenize=False, **kwargs)
                except Exception as e:
                    text = None
                    print(name, type(e).__name__, e)
                cases.append({"config": name, "template": [SHOW, TOOLS].index(template),
                              "request": REQUESTS.index(request), "text": text})

out = {"templates": [SHOW, TOOLS], "configs": CONFIGS, "older_map": OLDER_MAP, "requests": REQUESTS,
       "cases": cases}
path = os.path.join(ROOT, "golden", "cli", "render.json")
with open(path, "w") as f:
    json.dump(out, f, indent=1, ensure_ascii=True)
    f.write("\n")
print(os.path.getsize(path))
