#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands on a tiny whole model, against what transformers, tokenizers and jinja2 say about it
(tests/golden/cli/tiny.json, made by tests/oracle/cli_tiny.py)."""
import array
import json
import math
import os
import platform
import stat
import struct

import tool
from tool import FAILED, TINY, USAGE

GOLD = json.loads(tool.read(os.path.join(tool.ROOT, "tests/golden/cli/tiny.json")))
IDS = ",".join(map(str, GOLD["tokens"]))
F32 = ["--compute", "f32", "--cache-type-k", "f32", "--cache-type-v", "f32"]
N_VOCAB = 344


def read_npy(path):
    b = tool.read(path)
    assert b[:8] == b"\x93NUMPY\x01\x00", b[:8]
    n = struct.unpack_from("<H", b, 8)[0]
    assert (10 + n) % 64 == 0 and b[9 + n:10 + n] == b"\n"
    head = eval(b[10:10 + n].decode("latin1"))  # a dict literal that we wrote
    assert head["descr"] == "<f4" and head["fortran_order"] is False
    values = array.array("f")
    values.frombytes(b[10 + n:])
    return head["shape"], values


class Eval(tool.Case):
    def test_all_positions_match_transformers(self):
        r = self.ok("eval", TINY, "--tokens", IDS, "--decode", 12, "--all", "--top", N_VOCAB,
                    "--json", *F32).json
        self.assertEqual(r["n_vocab"], N_VOCAB)
        self.assertEqual(r["generated"], GOLD["generated"])
        self.assertEqual([p["i"] for p in r["positions"]], list(range(len(GOLD["tokens"]) + 12)))
        self.assertEqual([p["argmax"] for p in r["positions"]], GOLD["argmax"])
        for p, want in zip(r["positions"], GOLD["logits_first"]):
            got = {t["id"]: t["logit"] for t in p["top"]}
            self.assertEqual(len(got), N_VOCAB)
            for i, w in enumerate(want):
                self.assertLess(abs(got[i] - w), 1e-4 * max(1, abs(w)))

    def test_a_key_that_the_cache_cannot_hold(self):
        """Keys of 10^7 times their size: f32 holds them, f16 ends at 65504. They are told, not cut off there."""
        keys = "model.layers.0.self_attn.k_proj.weight"
        t = [t for t in self.ok("tensor", TINY, "--json").json if t["name"] == keys][0]
        b = bytearray(tool.read(TINY))
        v = array.array("f", b[t["offset"]:t["offset"] + t["bytes"]])
        b[t["offset"]:t["offset"] + t["bytes"]] = array.array("f", [x * 1e7 for x in v]).tobytes()
        path = self.path("loud.cmf")
        with open(path, "wb") as f:
            f.write(b)
        self.ok("eval", path, "--tokens", IDS, "--decode", 2, *F32)
        for mode in ("f32", "int8"):
            for kind in ("f16", "q8_0"):
                r = tool.run("eval", path, "--tokens", IDS, "--compute", mode, "--cache-type-k", kind)
                self.assertEqual(r.rc, FAILED)
                self.assertRegex(r.err, "kv cache, layer 0: .*--cache-type-k f32.*keys %s" % kind)

    def test_one_position_without_all(self):
        r = self.ok("eval", TINY, "--tokens", IDS, "--decode", 3, "--top", 1, "--json", *F32).json
        self.assertEqual(len(r["positions"]), 1)
        p = r["positions"][0]
        self.assertEqual(p["i"], len(GOLD["tokens"]) - 1)
        self.assertEqual(p["argmax"], GOLD["argmax"][p["i"]])
        self.assertEqual([t["id"] for t in p["top"]], [p["argmax"]])
        self.assertEqual(r["generated"], GOLD["generated"][:3])

    def test_top_is_sorted(self):
        top = self.ok("eval", TINY, "--tokens", IDS, "--top", 20, "--json").json["positions"][0]["top"]
        logits = [t["logit"] for t in top]
        self.assertEqual(logits, sorted(logits, reverse=True))
        for n in (64, 65, 344, 9999): # few are inserted, many are sorted
            more = self.ok("eval", TINY, "--tokens", IDS, "--top", n, "--json").json["positions"][0]["top"]
            self.assertEqual(len(more), min(n, 344))
            self.assertEqual(more[:20], top)
            self.assertEqual(more, sorted(more, key=lambda t: (-t["logit"], t["id"])))

    def test_weights_that_are_no_numbers_give_no_tokens_and_no_score(self):
        t = self.ok("tensor", TINY, "model.norm.weight", "--json").json[0]
        blob = bytearray(tool.read(TINY))
        struct.pack_into("<f", blob, t["offset"], math.nan)
        broken = self.path("broken.cmf")
        with open(broken, "wb") as f:
            f.write(blob)
        text = self.path("t.txt")
        with open(text, "w") as f:
            f.write("hello world " * 20)
        for args in (["eval", broken, "--tokens", IDS, "--decode", 1], ["ppl", broken, text],
                     ["run", broken, "x"], ["ppl", TINY, text, "--kl", broken]):
            self.assertIn("weights are broken", self.fails(FAILED, *args).err)

    def test_f32_is_the_default(self):
        a = self.ok("eval", TINY, "--tokens", IDS, "--json").raw
        b = self.ok("eval", TINY, "--tokens", IDS, "--json", "--compute", "f32", "--cache-type-k",
                    "f16", "--cache-type-v", "f16").raw
        self.assertEqual(a, b)

    def test_same_bits_for_threads_batches_and_reading(self):
        for mode in ("f32", "int8"):
            def logits(*args):
                path = self.path("l.npy")
                self.ok("eval", TINY, "--tokens", IDS, "--decode", 4, "--all", "--npy", path,
                        "--json", "--compute", mode, *args)
                return tool.read(path)
            want = logits("-t", 1)
            for args in (["-t", 2], ["-t", 3], ["-ub", 1], ["-ub", 3], ["--no-mmap"], ["-c", 400]):
                self.assertEqual(logits(*args), want, args)

    def test_npy_has_the_logits_of_the_positions(self):
        path = self.path("logits.npy")
        r = self.ok("eval", TINY, "--tokens", IDS, "--decode", 2, "--all", "--top", N_VOCAB, "--npy",
                    path, "--json", *F32).json
        shape, v = read_npy(path)
        self.assertEqual(shape, (len(GOLD["tokens"]) + 2, N_VOCAB))
        for row, p in enumerate(r["positions"]):
            for t in p["top"]:
                got = v[row * N_VOCAB + t["id"]]
                self.assertEqual(struct.pack("<f", t["logit"]), struct.pack("<f", got))

    def test_npy_of_one_position(self):
        path = self.path("logits.npy")
        self.ok("eval", TINY, "--tokens", IDS, "--npy", path)
        self.assertEqual(read_npy(path)[0], (1, N_VOCAB))

    def test_npy_that_cannot_be_written_fails(self):
        r = self.fails(FAILED, "eval", TINY, "--tokens", IDS, "--npy", self.path("no/such/dir.npy"))
        self.assertIn("dir.npy", r.err)

    def test_a_device_is_written_to_but_never_removed(self):
        r = self.fails(FAILED, "eval", TINY, "--tokens", IDS, "--all", "--npy", "/dev/full")
        self.assertIn("/dev/full", r.err)
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_id_outside_the_vocabulary(self):
        r = self.fails(FAILED, "eval", TINY, "--tokens", "1,344", "--json")
        self.assertIn("344", r.err)
        self.assertEqual(r.out, "")

    def test_context_that_is_too_small_names_both_numbers(self):
        r = self.fails(FAILED, "eval", TINY, "--tokens", IDS, "-c", 4)
        self.assertRegex(r.err, r"want 4, got 7")
        self.assertIn("-c", r.err)

    def test_human_form(self):
        out = self.ok("eval", TINY, "--tokens", IDS, "--decode", 2, *F32).out
        self.assertIn("position 6: %d (" % GOLD["argmax"][6], out)
        self.assertIn("generated: %d,%d" % tuple(GOLD["generated"][:2]), out)


class Text(tool.Case):
    def test_tokenize_matches_tokenizers(self):
        for t in GOLD["tokenize"]:
            r = self.ok("tokenize", TINY, "--special", "--json", stdin=t["text"].encode()).json
            self.assertEqual(r["ids"], t["ids"])
            self.assertEqual(r["tokens"], t["tokens"])

    def test_without_special_control_text_is_plain(self):
        plain = self.ok("tokenize", TINY, "--json", stdin=b"<|im_start|>user").json["ids"]
        special = self.ok("tokenize", TINY, "--special", "--json", stdin=b"<|im_start|>user").json["ids"]
        self.assertNotEqual(plain, special)
        self.assertTrue(set(special) - set(plain))

    def test_detokenize_gives_the_text_back(self):
        for text in ("Hello world", "na\u00efve \u65e5\u672c\n", "a  b"):
            ids = self.ok("tokenize", TINY, stdin=text.encode()).out.strip()
            self.assertEqual(self.ok("detokenize", TINY, ids).out, text)
            self.assertEqual(self.ok("detokenize", TINY, ids, "--json").json, {"text": text})

    def test_detokenize_reads_ids_from_standard_input(self):
        text = "Caf\u00e9 " * 40000  # more ids than one argument of a command holds
        ids = self.ok("tokenize", TINY, stdin=text.encode()).out.encode()
        self.assertGreater(len(ids), 1 << 17)
        self.assertEqual(self.ok("detokenize", TINY, stdin=ids).out, text)
        self.assertEqual(self.ok("detokenize", TINY, "-", stdin=b"").out, "")
        self.assertEqual(self.ok("detokenize", TINY, "", "--json").json, {"text": ""})
        self.assertIn("1;2", self.fails(USAGE, "detokenize", TINY, stdin=b"5,1;2").err)
        self.fails(USAGE, "detokenize", TINY, stdin=b"5\0,6")
        want = self.ok("eval", TINY, "--tokens", "5,6,7", "--json").json
        self.assertEqual(self.ok("eval", TINY, "--tokens", "-", "--json", stdin=b"5,6,7\n").json, want)
        self.fails(USAGE, "eval", TINY, "--tokens", "")

    def test_tokenize_bytes_that_are_not_utf8(self):
        self.ok("tokenize", TINY, "--json", stdin=b"a\xff\xfe\x00b")

    def test_detokenize_id_outside_the_vocabulary(self):
        self.fails(FAILED, "detokenize", TINY, "99999")

    def test_render_matches_jinja2(self):
        text = json.dumps(GOLD["messages"]).encode()
        self.assertEqual(self.ok("render", TINY, "-", stdin=text).out, GOLD["rendered"])
        path = self.path("m.json")
        with open(path, "wb") as f:
            f.write(json.dumps({"messages": GOLD["messages"]}).encode())
        self.assertEqual(self.ok("render", TINY, path).out, GOLD["rendered"])

    def test_render_without_generation_prompt(self):
        text = json.dumps({"messages": GOLD["messages"], "add_generation_prompt": False}).encode()
        out = self.ok("render", TINY, "-", stdin=text).out
        self.assertEqual(out + "<|im_start|>assistant\n", GOLD["rendered"])

    def test_control_text_in_a_message_stays_text(self):
        # The golden message spells <|im_end|>: as tokens of the chat it must not become one.
        text = json.dumps(GOLD["messages"]).encode()
        ids = [int(i) for i in self.ok("render", TINY, "-", "--ids", stdin=text).out.split(",")]
        end = self.ok("tokenize", TINY, "--special", "--json", stdin=b"<|im_end|>").json["ids"]
        self.assertEqual(len(end), 1)
        self.assertEqual(ids.count(end[0]), len(GOLD["messages"]))

    def test_bad_chats_are_refused(self):
        for bad in (b"", b"{", b"3", b'{"messages": 3}', b'[{"role": "user"', b"[" * 100000):
            self.fails(FAILED, "render", TINY, "-", stdin=bad)

    def test_no_tokenizer_at_all_is_told(self):
        path = os.path.join(tool.FILES, "odd-minimal.cmf")
        r = self.fails(FAILED, "tokenize", path, stdin=b"x")
        self.assertIn("tokenizer.json", r.err)

    def test_tokenizer_beside_the_file(self):
        # A file without the section: the tiny model's tokenizer.json beside it is used.
        model = self.path("m.cmf")
        with open(model, "wb") as f:
            f.write(tool.read(os.path.join(tool.FILES, "odd-minimal.cmf")))
        blob = tool.read(TINY)
        off, n = struct.unpack_from("<2Q", blob, 0x50)
        with open(self.path("tokenizer.json"), "wb") as f:
            f.write(blob[off:off + n])
        t = GOLD["tokenize"][0]
        r = self.ok("tokenize", model, "--special", "--json", stdin=t["text"].encode())
        self.assertEqual(r.json["ids"], t["ids"])
        self.assertIn("warning", r.err)
        self.assertIn("beside", r.err)

    def test_no_template_gives_chatml_and_a_warning(self):
        model = self.path("m.cmf")
        with open(model, "wb") as f:
            f.write(tool.read(os.path.join(tool.FILES, "odd-minimal.cmf")))
        blob = tool.read(TINY)
        off, n = struct.unpack_from("<2Q", blob, 0x50)
        with open(self.path("tokenizer.json"), "wb") as f:
            f.write(blob[off:off + n])
        r = self.ok("render", model, "-", stdin=json.dumps(GOLD["messages"]).encode())
        self.assertIn("ChatML", r.err)
        self.assertEqual(r.out, GOLD["rendered"])  # the tiny model's own template is ChatML too


class Ppl(tool.Case):
    def text(self):
        path = self.path("t.txt")
        with open(path, "w") as f:
            f.write(GOLD["ppl"]["text"])
        return path

    def test_perplexity_matches_transformers(self):
        r = self.ok("ppl", TINY, self.text(), "-c", GOLD["ppl"]["ctx"], "--json", *F32).json
        self.assertEqual(r["n_tokens"], GOLD["ppl"]["n_tokens"])
        self.assertLess(abs(r["nll"] - GOLD["ppl"]["nll"]), 1e-4)
        self.assertLess(abs(r["ppl"] - math.exp(r["nll"])), 1e-6 * r["ppl"])

    def test_kl_of_a_model_from_itself_is_zero(self):
        r = self.ok("ppl", TINY, self.text(), "--kl", TINY, "--json", *F32).json
        self.assertLess(abs(r["kl"]), 1e-12)
        self.assertEqual(r["same_argmax"], 1.0)
        plain = self.ok("ppl", TINY, self.text(), "--json", *F32).json
        self.assertEqual(plain["ppl"], r["ppl"])

    def test_a_base_changes_no_sum_of_longrope_either(self):
        # A window with a base is evaluated in parts; longrope's angles are those of the whole.
        m = self.path("phi.cmf")
        self.ok("convert", os.path.join(tool.ROOT, "tests/golden/families/phi3_longrope"), "-o", m,
                "--quant", "f32")
        for ctx in (60, 200): # its original context is 64
            args = ["ppl", m, self.text(), "-c", ctx, "--json", *F32]
            self.assertEqual(self.ok(*args).json["nll"], self.ok(*args, "--kl", m).json["nll"])

    def test_kl_of_another_arithmetic_is_positive(self):
        r = self.ok("ppl", TINY, self.text(), "--cache-type-k", "q8_0", "--cache-type-v", "q8_0",
                    "--kl", TINY, "--json").json
        self.assertGreater(r["kl"], 0)
        self.assertLess(r["kl"], 0.05)

    def test_too_short_text_is_told(self):
        self.fails(FAILED, "ppl", TINY, "-", "--json", stdin=b"")

    def test_missing_file_is_told(self):
        self.assertIn("none.txt", self.fails(FAILED, "ppl", TINY, self.path("none.txt")).err)


class Run(tool.Case):
    GREEDY = ["--temp", "0", "-n", "8"]

    def test_answer_and_timings_are_apart(self):
        r = self.ok("run", TINY, "Hello", *self.GREEDY)
        self.assertTrue(r.out)
        self.assertRegex(r.err, r"load .* prompt \d+ tokens.* decode \d+ tokens")
        self.assertNotIn("tokens/s", r.out)

    def test_greedy_is_repeatable_and_needs_no_seed(self):
        a = self.ok("run", TINY, "Hello", *self.GREEDY)
        self.assertEqual(a.out, self.ok("run", TINY, "Hello", *self.GREEDY).out)
        self.assertNotIn("seed", a.err)

    def test_same_seed_same_answer(self):
        a = self.ok("run", TINY, "Hello", "-n", 12, "--seed", 7).out
        self.assertEqual(a, self.ok("run", TINY, "Hello", "-n", 12, "--seed", 7, "-t", 1).out)
        others = [self.ok("run", TINY, "Hello", "-n", 12, "--seed", s).out for s in (8, 9, 10)]
        self.assertTrue(any(o != a for o in others))

    def test_seed_is_shown_and_can_be_repeated(self):
        a = self.ok("run", TINY, "Hello", "-n", 8)
        seed = a.err.split("| seed ")[1].split()[0]
        self.assertEqual(a.out, self.ok("run", TINY, "Hello", "-n", 8, "--seed", seed).out)

    def test_seed_minus_one_is_the_clock(self):
        self.assertRegex(self.ok("run", TINY, "Hello", "-n", 2, "--seed", -1).err, r"\| seed \d+")

    def test_numbers_too_small_for_f32_are_zero_not_the_default(self):
        greedy = self.ok("run", TINY, "Hello", *self.GREEDY)
        r = self.ok("run", TINY, "Hello", "-n", 8, "--temp", "1e-50")
        self.assertEqual(greedy.out, r.out)
        self.assertNotIn("seed", r.err)
        args = ["run", TINY, "Hello", "-n", 40, "--temp", 3, "--top-k", 0, "--top-p", 1, "--seed", 3]
        self.assertEqual(self.ok(*args, "--min-p", 0).out, self.ok(*args, "--min-p", "1e-50").out)

    def test_prompt_comes_from_everywhere(self):
        want = self.ok("run", TINY, "Hello", *self.GREEDY).out
        path = self.path("p.txt")
        with open(path, "w") as f:
            f.write("Hello\n")
        self.assertEqual(want, self.ok("run", TINY, "-p", "Hello", *self.GREEDY).out)
        self.assertEqual(want, self.ok("run", TINY, "-f", path, *self.GREEDY).out)
        self.assertEqual(want, self.ok("run", TINY, *self.GREEDY, stdin=b"Hello\n").out)

    def test_raw_shows_the_prompt_first(self):
        out = self.ok("run", TINY, "Hello", "--raw", *self.GREEDY).out
        self.assertTrue(out.startswith("Hello"))
        bare = self.ok("run", TINY, "Hello", "--raw", "--no-display-prompt", *self.GREEDY).out
        self.assertEqual(out, "Hello" + bare)

    def test_raw_continues_as_eval_does(self):
        ids = self.ok("tokenize", TINY, "--special", stdin=b"Hello").out.strip()
        g = self.ok("eval", TINY, "--tokens", ids, "--decode", 6, "--json", "--compute", "int8").json
        want = self.ok("detokenize", TINY, "--skip-special", ",".join(map(str, g["generated"]))).out
        out = self.ok("run", TINY, "Hello", "--raw", "--no-display-prompt", "--temp", 0, "-n", 6,
                      "--ignore-eos").out
        self.assertEqual(out.rstrip("\n"), want.rstrip("\n"))

    def test_system_message_changes_the_prompt(self):
        a = self.ok("run", TINY, "Hello", "--json", *self.GREEDY).json
        b = self.ok("run", TINY, "Hello", "--system", "Be brief.", "--json", *self.GREEDY).json
        self.assertGreater(b["n_prompt"], a["n_prompt"])

    def test_json(self):
        r = self.ok("run", TINY, "Hello", "--json", *self.GREEDY).json
        for k in ("text", "finish", "n_prompt", "n_generated", "load_s", "prompt_tokens_per_s",
                  "decode_tokens_per_s", "seed"):
            self.assertIn(k, r)
        self.assertEqual(r["n_generated"] if r["finish"] == "length" else 8, 8)

    def test_stop_string(self):
        text = self.ok("run", TINY, "Hello", "--json", "--temp", 0, "-n", 30).json["text"]
        self.assertGreater(len(text), 4)
        stop = text[2:4]
        r = self.ok("run", TINY, "Hello", "--json", "--temp", 0, "-n", 30, "--stop", stop).json
        self.assertEqual(r["finish"], "stop")
        self.assertEqual(r["text"], text[:text.index(stop)])

    def test_context_full_ends_the_answer(self):
        r = self.ok("run", TINY, "Hello", "--json", "--temp", 0, "-c", 40, "--ignore-eos").json
        self.assertEqual(r["finish"], "context")

    def test_prompt_that_does_not_fit_names_both_numbers(self):
        r = self.fails(FAILED, "run", TINY, "Hello " * 50, "-c", 8)
        self.assertRegex(r.err, r"want 8, got \d+")
        self.assertEqual(r.out, "")

    def test_sampler_options_are_taken(self):
        self.ok("run", TINY, "Hello", "-n", 5, "--top-k", 5, "--top-p", 0.5, "--min-p", 0.1,
                "--typical", 0.9, "--repeat-penalty", 1.1, "--repeat-last-n", -1,
                "--presence-penalty", 0.1, "--frequency-penalty", 0.1, "--seed", 1)

    def test_top_k_1_is_greedy(self):
        a = self.ok("run", TINY, "Hello", "-n", 8, "--top-k", 1, "--seed", 3).out
        self.assertEqual(a, self.ok("run", TINY, "Hello", *self.GREEDY).out)

    def test_colour_only_when_asked(self):
        self.assertNotIn("\033", self.ok("run", TINY, "Hello", *self.GREEDY).out)
        self.assertIn("\033[32m", self.ok("run", TINY, "Hello", "--color", *self.GREEDY).out)

    def test_cache_types_and_compute(self):
        for k in ("f16", "f32", "q8_0"):
            for c in ("f32", "int8"):
                self.ok("run", TINY, "Hello", *self.GREEDY, "--compute", c, "-ctk", k, "-ctv", k)

    def test_a_pipe_without_a_byte_is_no_prompt(self):
        self.assertIn("empty", self.fails(USAGE, "run", TINY).err)

    def test_a_context_longer_than_trained_is_told(self):
        told = "than the 512 that the model was made for"
        self.assertIn(told, self.ok("run", TINY, "Hello", "-c", 600, *self.GREEDY).err)
        self.assertNotIn(told, self.ok("run", TINY, "Hello", "-c", 500, *self.GREEDY).err)

    def test_empty_prompt_is_an_empty_message(self):
        self.ok("run", TINY, "", *self.GREEDY)


class Bench(tool.Case):
    def test_json(self):
        r = self.ok("bench", TINY, "-p", 16, "-n", 8, "-t", 2, "-r", 2, "--json").json
        self.assertEqual(r["pp"]["n"], 16)
        self.assertEqual(r["tg"]["n"], 8)
        self.assertGreater(r["pp"]["tokens_per_s"], 0)
        self.assertGreater(r["tg"]["tokens_per_s"], 0)
        self.assertEqual(r["threads"], 2)
        self.assertGreater(r["weight_bytes_per_token"], 10000)

    def test_parts_can_be_left_out(self):
        r = self.ok("bench", TINY, "-p", 0, "-n", 4, "-r", 1, "--json").json
        if os.path.exists("/proc/cpuinfo") and platform.machine() == "x86_64":
            flags = tool.read("/proc/cpuinfo", "r").split("flags", 1)[1].split("\n", 1)[0].split()
            self.assertEqual(r["cpu_has_fma"], "fma" in flags)
        self.assertEqual(r["pp"], {"n": 0, "tokens_per_s": 0.0, "stddev": 0.0})

    def test_human_form(self):
        self.assertIn("tokens/s", self.ok("bench", TINY, "-p", 4, "-n", 4, "-r", 1).out)


if __name__ == "__main__":
    tool.main()
