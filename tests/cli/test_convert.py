#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convert, and what the other commands do with a source that is no .cmf. The source is a Hugging
Face directory made here from the tensors of the tiny golden model, so the golden logits apply."""
import fcntl
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import time

import tool
from tool import FAILED, INTERRUPTED, OK, TINY, USAGE

GOLD = json.loads(tool.read(os.path.join(tool.ROOT, "tests/golden/cli/tiny.json")))
IDS = ",".join(map(str, GOLD["tokens"]))
SIDE = json.loads(tool.read(TINY[:-4] + ".json"))
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 344, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "max_position_embeddings": 512,
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
}


def make_hf(path, template=None, **config):
    """A checkpoint directory: config.json, model.safetensors, tokenizer.json, the chat template
    (the tiny model's own, or the one given)."""
    os.makedirs(path)
    blob = tool.read(TINY)
    off = struct.unpack_from("<12Q", blob, 0x10)
    header, data, at = {}, b"", 0
    for t in SIDE["tensors"]:
        header[t["name"]] = {"dtype": "F32", "shape": t["shape"], "data_offsets": [at, at + t["nbytes"]]}
        data += blob[off[4] + t["off"]:off[4] + t["off"] + t["nbytes"]]
        at += t["nbytes"]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    template = template or json.loads(blob[off[0]:off[0] + off[1]])["tokenizer_config"]["chat_template"]
    files = {
        "model.safetensors": struct.pack("<Q", len(text)) + text + data,
        "config.json": json.dumps(dict(CONFIG, **config)).encode(),
        "generation_config.json": b'{"eos_token_id": [340, 342], "pad_token_id": 340}',
        "tokenizer.json": blob[off[8]:off[8] + off[9]],
        "chat_template.jinja": template.encode(),
    }
    for name, content in files.items():
        with open(os.path.join(path, name), "wb") as f:
            f.write(content)
    return path


def edit_hf(source, path, edit, **config):
    """A copy of a checkpoint directory of one file with other tensors (edit changes a dict of name:
    [dtype, shape, bytes]) and other keys in its config.json."""
    shutil.copytree(source, path)
    blob = tool.read(os.path.join(source, "model.safetensors"))
    base = 8 + struct.unpack("<Q", blob[:8])[0]
    old = json.loads(blob[8:base])
    old.pop("__metadata__", None)
    tensors = {k: [t["dtype"], t["shape"], blob[base + t["data_offsets"][0]:base + t["data_offsets"][1]]]
               for k, t in old.items()}
    edit(tensors)
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
    old = json.loads(tool.read(os.path.join(source, "config.json")))
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(dict(old, **config), f)
    return path


class Convert(tool.Case):
    def setUp(self):
        super().setUp()
        self.src = make_hf(self.path("hf"))
        self.out = self.path("out.cmf")

    def test_slashes_behind_a_directory_change_nothing(self):
        self.ok("convert", self.src, "-o", self.out)
        self.ok("convert", self.src + "//", "-o", self.path("slash.cmf"))
        self.assertEqual(tool.read(self.out), tool.read(self.path("slash.cmf")))

    def test_templates_beside_the_default_one_are_told(self):
        os.remove(os.path.join(self.src, "chat_template.jinja"))
        with open(os.path.join(self.src, "tokenizer_config.json"), "w") as f:
            json.dump({"chat_template": [{"name": "default", "template": "default"},
                                         {"name": "tool_use", "template": "tools"}]}, f)
        self.assertIn("named tool_use is left out", self.ok("convert", self.src, "-o", self.out).err)
        self.assertEqual(self.ok("render", self.out, "-", stdin=b'{"messages":[],"tools":[]}').out, "default")

    def test_f32_gives_the_golden_logits(self):
        r = self.ok("convert", self.src, "-o", self.out, "--quant", "f32")
        self.assertIn("no value was rounded", r.out)
        self.ok("verify", self.out)
        e = self.ok("eval", self.out, "--tokens", IDS, "--decode", 12, "--all", "--top", 344, "--json",
                    "--compute", "f32", "-ctk", "f32", "-ctv", "f32").json
        self.assertEqual(e["generated"], GOLD["generated"])
        for p, want in zip(e["positions"], GOLD["logits_first"]):
            got = {t["id"]: t["logit"] for t in p["top"]}
            self.assertTrue(all(abs(got[i] - w) < 1e-4 * max(1, abs(w)) for i, w in enumerate(want)))

    def test_bundle_and_tokenizer_come_along(self):
        self.ok("convert", self.src, "-o", self.out)
        info = self.ok("info", self.out, "--json").json
        self.assertEqual(info["chat"]["eos_token_ids"], [340, 342])
        text = json.dumps(GOLD["messages"]).encode()
        self.assertEqual(self.ok("render", self.out, "-", stdin=text).out, GOLD["rendered"])
        t = GOLD["tokenize"][0]
        r = self.ok("tokenize", self.out, "--special", "--json", stdin=t["text"].encode()).json
        self.assertEqual(r["ids"], t["ids"])

    def test_every_type_converts_verifies_and_runs(self):
        out = self.ok("convert", "--help").out
        types = out.split("--quant TYPE")[1].split("(")[1].split(")")[0].replace("\n", " ")
        types = [t.strip() for t in types.split(",")]
        self.assertIn("q8_row", types)
        for t in types:
            path = self.path(t + ".cmf")
            self.ok("convert", self.src, "-o", path, "--quant", t)
            self.ok("verify", path)
            self.ok("run", path, "Hello", "-n", 2, "--temp", 0)

    def test_tensor_rules(self):
        self.ok("convert", self.src, "-o", self.out, "--quant", "q8_row", "--tensor", "lm_head.*=f16",
                "--tensor", "*.down_proj.weight=f32")
        types = {t["name"]: t["dtype"] for t in self.ok("tensor", self.out, "--json").json}
        self.assertEqual(types["lm_head.weight"], "f16")
        self.assertEqual(types["model.layers.1.mlp.down_proj.weight"], "f32")
        self.assertEqual(types["model.layers.1.mlp.up_proj.weight"], "q8_row")

    def test_json_lists_every_tensor_largest_error_first(self):
        r = self.ok("convert", self.src, "-o", self.out, "--json").json
        self.assertEqual(r["file"], self.out)
        self.assertEqual(r["bytes"], os.path.getsize(self.out))
        self.assertEqual(len(r["tensors"]), len(SIDE["tensors"]))
        errors = [t["relative_error"] for t in r["tensors"]]
        self.assertEqual(errors, sorted(errors, reverse=True))
        self.assertGreater(errors[0], 0)
        self.assertLess(errors[0], 0.05)

    def test_same_bytes_every_time(self):
        self.ok("convert", self.src, "-o", self.out, "-t", 1)
        other = self.path("other.cmf")
        self.ok("convert", self.src, "-o", other, "-t", 2)
        self.assertEqual(tool.read(self.out), tool.read(other))

    def test_encoders_differ_and_the_search_is_closer(self):
        for t in ("q4_block", "q4_tiled", "q4tp"):
            errors = {}
            for e in ("reference", "search"):
                r = self.ok("convert", self.src, "-o", self.out, "--quant", t, "--encoder", e, "--force",
                            "--json").json
                errors[e] = {x["name"]: x["relative_error"] for x in r["tensors"] if x["to"] == t}
            self.assertTrue(all(v <= errors["reference"][n] for n, v in errors["search"].items()))
            self.assertLess(sum(errors["search"].values()), sum(errors["reference"].values()))
            searched = tool.read(self.out)
            self.ok("convert", self.src, "-o", self.out, "--quant", t, "--force")
            self.assertEqual(tool.read(self.out), searched)
        self.fails(USAGE, "convert", self.src, "-o", self.out, "--encoder", "best", "--force")

    def test_existing_target_is_kept_without_force(self):
        with open(self.out, "w") as f:
            f.write("mine")
        r = self.fails(FAILED, "convert", self.src, "-o", self.out)
        self.assertIn("--force", r.err)
        self.assertEqual(tool.read(self.out), b"mine")
        self.ok("convert", self.src, "-o", self.out, "--force")
        self.ok("verify", self.out)

    def test_a_target_that_is_no_regular_file_is_not_replaced(self):
        for target in (self.dir, self.path("pipe")):
            if target != self.dir:
                os.mkfifo(target)
            r = self.fails(FAILED, "convert", self.src, "-o", target, "--force")
            self.assertIn("regular", r.err)
        self.assertTrue(stat.S_ISFIFO(os.stat(self.path("pipe")).st_mode))

    def test_nothing_is_left_behind(self):
        self.ok("convert", self.src, "-o", self.out)
        self.assertEqual(sorted(os.listdir(self.dir)), ["hf", "out.cmf"])

    def test_unknown_config_key_is_named_and_nothing_written(self):
        src = make_hf(self.path("odd"), rope_scaling={"rope_type": "spiral", "factor": 2.0})
        r = self.fails(FAILED, "convert", src, "-o", self.out)
        self.assertIn("spiral", r.err)
        self.assertFalse(os.path.exists(self.out))

    def test_unknown_family_is_named(self):
        src = make_hf(self.path("odd"), model_type="frobnicator", architectures=["Frob"])
        self.assertIn("frobnicator", self.fails(FAILED, "convert", src, "-o", self.out).err)

    def test_what_is_not_the_model_itself_is_told_with_what_to_do(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n"
        weights = os.path.join(self.src, "model.safetensors")
        other = self.path("other")
        os.mkdir(other)
        def advice(source, text):
            self.assertIn(text, self.fails(FAILED, "convert", source, "-o", self.out).err)
        with open(weights, "wb") as f:
            f.write(pointer)
        advice(self.src, "git lfs pull")
        advice(weights, "git lfs pull")
        with open(weights, "wb") as f:
            f.write(struct.pack("<Q", 1 << 40))
        advice(self.src, "incomplete: get it again")
        os.rename(weights, os.path.join(self.src, "pytorch_model.bin"))
        advice(self.src, "safetensors first")
        for name, text in (("params.json", "with config.json"), ("adapter_config.json", "LoRA")):
            open(os.path.join(other, name), "w").close()
            advice(other, text)
        advice("https://example.org/m.gguf", "download it first")
        advice("Owner/Model", "hf download")
        for args in ((self.path("no.gguf"), "-o", self.out), ("folder/no.gguf", "-o", self.out),
                     (TINY, "-o", "folder/out.cmf")):
            self.assertNotIn("hf download", self.fails(FAILED, "convert", *args).err)

    def test_tensors_without_elements(self):
        # as transformers saves no shared experts: of width 0
        source = os.path.join(tool.ROOT, "tests/golden/families/deepseek_v3")
        def logits(name, edit):
            src = edit_hf(source, self.path(name), edit, n_shared_experts=0)
            self.ok("convert", src, "-o", self.out, "--quant", "f32", "-f")
            return self.ok("eval", self.out, "--tokens", "1,2,3", "--all", "--top", 9, "--json").out
        def drop(tensors):
            for k in [k for k in tensors if ".shared_experts." in k]:
                del tensors[k]
        def empty(tensors):
            for k, t in tensors.items():
                if ".shared_experts." in k:
                    tensors[k] = [t[0], [t[1][0], 0] if "down_proj" in k else [0, t[1][1]], b""]
        self.assertEqual(logits("empty", empty), logits("absent", drop))

    def test_kimi_linear_as_transformers_saves_it(self):
        # both forms of its configuration, and dense layers under the name of the mixtures
        source = os.path.join(tool.ROOT, "tests/golden/families/kimi_linear")
        config = json.loads(tool.read(os.path.join(source, "config.json")))
        kinds = config["layer_types"]
        linear = {"kda_layers": [i + 1 for i, k in enumerate(kinds) if k == "linear_attention"],
                  "full_attn_layers": [i + 1 for i, k in enumerate(kinds) if k == "full_attention"],
                  "num_heads": config["linear_num_heads"], "head_dim": config["linear_head_dim"],
                  "short_conv_kernel_size": config["linear_conv_kernel_dim"]}
        def rename(tensors):
            for name in list(tensors):
                tensors[name.replace(".0.mlp.", ".0.block_sparse_moe.")] = tensors.pop(name)
        saved = edit_hf(source, self.path("saved"), rename, linear_attn_config=linear)
        outs = []
        for src in (source, saved):
            self.ok("convert", src, "-o", self.out, "--quant", "f32", "-f")
            outs.append(self.ok("eval", self.out, "--tokens", "1,2,3", "--all", "--top", 9, "--json").out)
        self.assertEqual(*outs)
        for key, value in (("layer_types", kinds[::-1]), ("linear_head_dim", 1 + linear["head_dim"])):
            other = edit_hf(source, self.path(key), rename, linear_attn_config=linear, **{key: value})
            self.assertIn(key, self.fails(FAILED, "convert", other, "-o", self.out, "-f").err)

    def test_no_tensor_may_be_missing(self):
        # of families whose recipes have tensors that not every model has
        for family in ("deepseek_v3", "kimi_k3"):
            source = os.path.join(tool.ROOT, "tests/golden/families", family)
            names = []
            edit_hf(source, self.path(family), names.extend)
            for name in names:
                unread = name.startswith(("vision_tower.", "model.layers.3."))
                if unread or ".experts." in name and ".experts.0." not in name:
                    continue
                shutil.rmtree(self.path("less"), ignore_errors=True)
                src = edit_hf(source, self.path("less"), lambda tensors: tensors.pop(name))
                self.fails(FAILED, "convert", src, "-o", self.out)
                self.assertFalse(os.path.exists(self.out), (family, name))

    def test_missing_source_and_missing_directory(self):
        self.assertIn("nope", self.fails(FAILED, "convert", self.path("nope"), "-o", self.out).err)
        self.fails(FAILED, "convert", self.src, "-o", self.path("no/such/out.cmf"))

    def test_no_output_is_usage(self):
        self.fails(USAGE, "convert", self.src)

    def test_a_source_that_is_cut(self):
        path = os.path.join(self.src, "model.safetensors")
        blob = tool.read(path)
        for n in (0, 4, 8, 100, len(blob) - 1):
            with open(path, "wb") as f:
                f.write(blob[:n])
            self.fails(FAILED, "convert", self.src, "-o", self.out)
            self.assertFalse(os.path.exists(self.out))

    def test_interrupt_ends_with_130_and_resumes(self):
        p = subprocess.Popen([tool.TOOL, "convert", self.src, "-o", self.out], stderr=subprocess.PIPE,
                             stdout=subprocess.PIPE, env=tool.env())
        time.sleep(0.005)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        self.assertIn(p.returncode, (OK, INTERRUPTED, -signal.SIGINT), err)
        if p.returncode != OK:
            self.assertFalse(os.path.exists(self.out))
            self.ok("convert", self.src, "-o", self.out)
        self.ok("verify", self.out)


    def test_a_second_conversion_to_the_same_file_is_refused(self):
        with open(self.out + ".part", "wb") as f:  # what a conversion at work holds
            fcntl.flock(f, fcntl.LOCK_EX)
            r = self.fails(FAILED, "convert", self.src, "-o", self.out)
            self.assertIn(self.out, r.err)
            self.assertIn("another conversion is writing this file", r.err)
            self.assertIn("give another name", r.err)
        self.ok("convert", self.src, "-o", self.out)  # a stale .part blocks nothing
        self.ok("verify", self.out)


class Gemma(tool.Case):
    def test_gelu_means_its_tanh_form(self):
        """transformers' GemmaConfig: a legacy value of the official releases."""
        source = os.path.join(tool.ROOT, "tests", "golden", "families", "gemma")
        legacy = self.path("legacy")
        shutil.copytree(source, legacy)
        with open(os.path.join(legacy, "config.json"), "r+", encoding="utf-8") as f:
            config = json.load(f)
            self.assertEqual(config["hidden_act"], "gelu_pytorch_tanh")
            f.seek(0)
            f.truncate()
            json.dump(dict(config, hidden_act="gelu"), f)
        acts = []
        for path in (source, legacy):
            cmf = path + ".cmf" if path == legacy else self.path("gemma.cmf")
            self.ok("convert", path, "-o", cmf)
            acts.append(self.ok("header", cmf).json["arch"]["hidden_act"])
        self.assertEqual(acts, ["gelu_tanh", "gelu_tanh"])


class Template(tool.Case):
    def model(self, template):
        src = make_hf(self.path("hf"), template=template)
        out = self.path("m.cmf")
        r = tool.run("convert", src, "-o", out)
        return out, r

    def test_a_construct_that_cannot_run_is_refused_with_its_line(self):
        # U09: at open, never replaced by a look-alike; what needs no template still works.
        out, r = self.model("{% for m in messages %}\n{% frobnicate m %}\n{% endfor %}")
        if r.rc != OK:  # the converter may refuse it first, in the same words
            self.assertIn("line 2", r.err)
            return
        for args in (["run", out, "x"], ["chat", out], ["render", out, "-"]):
            r = self.fails(FAILED, *args, stdin=b"[]")
            self.assertIn("frobnicate", r.err)
            self.assertIn("line 2", r.err)
            self.assertNotIn("ChatML", r.err)
        self.ok("run", out, "x", "--raw", "-n", 2)
        self.ok("tokenize", out, stdin=b"x")
        self.ok("ppl", out, "-", stdin=b"Hello world, hello.")

    def test_raise_exception_gives_the_templates_own_words(self):
        # U11
        out, r = self.model("{{ raise_exception('roles must alternate') }}")
        self.assertEqual(r.rc, OK, r.err)
        r = self.fails(FAILED, "run", out, "x")
        self.assertIn("roles must alternate", r.err)

    def test_variables_are_those_of_transformers(self):
        # tests/oracle/cli_render.py: tools and documents are none when absent, special tokens come
        # from tokenizer_config.json, null members of a message are gone; what it refuses, we refuse.
        gold = json.loads(tool.read(os.path.join(tool.ROOT, "tests/golden/cli/render.json")))
        models = {}
        for config in gold["configs"]:
            for i, template in enumerate(gold["templates"]):
                src = make_hf(self.path("%s%d" % (config, i)), template=template)
                files = {"tokenizer_config.json": gold["configs"][config]}
                if config == "older":
                    files["special_tokens_map.json"] = gold["older_map"]
                for name, content in files.items():
                    with open(os.path.join(src, name), "w", encoding="utf-8") as f:
                        json.dump(content, f)
                models[config, i] = self.path("%s%d.cmf" % (config, i))
                self.ok("convert", src, "-o", models[config, i])
        for c in gold["cases"]:
            request = gold["requests"][c["request"]]
            r = tool.run("render", models[c["config"], c["template"]], "-", stdin=json.dumps(request).encode())
            with self.subTest(config=c["config"], template=c["template"], request=request):
                self.assertEqual(r.rc, FAILED if c["text"] is None else OK, r.err)
                self.assertEqual(r.out, c["text"] or "")

    def test_strftime_now_is_local_time_unless_now_fixes_it(self):
        # As datetime.now() of Python under the same TZ (POSIX form: no zone files needed).
        form = "%Y-%m-%d %H|%s"
        out, r = self.model("{{ strftime_now('" + form + "') }}")
        self.assertEqual(r.rc, OK, r.err)
        for tz in ("AAA-05:30", "BBB9", "UTC0"):
            wall = ["python3", "-c", "import datetime; print(datetime.datetime.now().strftime('%s'))" % form]
            environ = tool.env(TZ=tz)
            before = subprocess.run(wall, env=environ, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
            r = tool.run("render", out, "-", stdin=b'[]', environ=environ)
            after = subprocess.run(wall, env=environ, stdout=subprocess.PIPE, check=True).stdout.decode().strip()
            self.assertTrue(before <= r.out <= after, (before, r.out, after))
            for now, want in (('"2026-08-05 12:34:56"', "2026-08-05 12|1785933296"), ("0", "1970-01-01 00|0")):
                r = tool.run("render", out, "-", stdin=b'{"messages": [], "now": %s}' % now.encode(),
                             environ=environ)
                self.assertEqual(r.out, want)

    def test_numbers_of_a_request_are_never_rounded(self):
        # Python prints 10**22 in full; what we cannot print so is refused with its place.
        out, r = self.model("{{ messages[0].content }}")
        self.assertEqual(r.rc, OK, r.err)
        text = b'[{"role": "tool", "content": %d}]'
        self.assertEqual(self.ok("render", out, "-", stdin=text % (2**63 - 1)).out, str(2**63 - 1))
        r = self.fails(FAILED, "render", out, "-", stdin=text % 10**22)
        self.assertIn("does not fit into 64 bits", r.err)
        self.assertIn("1" + "0" * 22, r.err)

    def test_undefined_variables_print_nothing(self):
        # U10: a token that the model lacks is neither "None" nor a crash, a question for tools works.
        out, r = self.model("{{ bos_token }}{% if tools %}T{% endif %}|{{ messages[0].content }}")
        self.assertEqual(r.rc, OK, r.err)
        text = json.dumps([{"role": "user", "content": "hi"}]).encode()
        self.assertEqual(self.ok("render", out, "-", stdin=text).out, "|hi")


class Hint(tool.Case):
    def setUp(self):
        super().setUp()
        self.src = make_hf(self.path("my model's dir"))

    def test_every_command_prints_the_exact_line(self):
        for args in (["run", self.src, "x"], ["chat", self.src], ["eval", self.src, "--tokens", "1"],
                     ["ppl", self.src, TINY[:-4] + ".json"], ["bench", self.src], ["info", self.src],
                     ["tokenize", self.src], ["tensor", self.src]):
            r = self.fails(FAILED, *args, stdin=b"x")
            lines = [l.strip() for l in r.err.splitlines() if l.strip().startswith("caisson convert ")]
            self.assertEqual(len(lines), 1, r.err)
            self.assertIn("--quant q8_row", lines[0])
        # The line works as it stands, quotes and all.
        bin_dir = os.path.dirname(tool.TOOL)
        env = tool.env(PATH=bin_dir + ":" + os.environ["PATH"])
        p = subprocess.run(["sh", "-c", lines[0]], env=env, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
        self.assertEqual(p.returncode, OK, p.stderr)
        self.ok("verify", self.src + ".cmf")

    def test_convert_flag_does_it_and_goes_on(self):
        r = self.ok("run", self.src, "Hello", "--convert", "-n", 4, "--temp", 0)
        self.assertIn("wrote", r.err)
        self.assertNotIn("wrote", r.out)
        again = self.ok("run", self.src, "Hello", "--convert", "-n", 4, "--temp", 0)
        self.assertEqual(r.out, again.out)
        self.assertIn("already there", again.err)

    def test_gguf_is_seen_by_its_content(self):
        path = self.path("model.bin")
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        r = self.fails(FAILED, "run", path, "x")
        self.assertIn("caisson convert %s -o %s.cmf --quant q8_row" % (path, path), r.err)
        path = self.path("model.gguf")
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        self.assertIn("-o %s.cmf" % path[:-5], self.fails(FAILED, "run", path, "x").err)

    def test_convert_flag_tells_why_it_cannot(self):
        path = self.path("model.gguf")
        with open(path, "wb") as f:
            f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        self.fails(FAILED, "run", path, "x", "--convert")
        self.assertFalse(os.path.exists(path[:-5] + ".cmf"))


if __name__ == "__main__":
    tool.main()
