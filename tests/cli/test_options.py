#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line itself: exit codes, help, completions, man pages. No model is opened."""
import os
import shutil
import subprocess
import unittest

import tool
from tool import FAILED, USAGE

COMMANDS = ["convert", "info", "verify", "run", "chat", "tokenize", "detokenize", "render", "eval",
            "ppl", "bench", "tensor", "completion", "man"]
MODEL_COMMANDS = ["run", "chat", "eval", "ppl", "bench"]


class Options(tool.Case):
    def test_no_command_is_usage(self):
        r = self.fails(USAGE)
        self.assertEqual(r.out, "")
        self.assertIn("Usage:", r.err)

    def test_unknown_command_is_usage(self):
        self.assertIn("frobnicate", self.fails(USAGE, "frobnicate").err)

    def test_version(self):
        self.assertRegex(self.ok("--version").out, r"^caisson \d+\.\d+\.\d+\n$")

    def test_version_of_header_and_build_agree(self):
        header = tool.read(tool.ROOT + "/include/caisson/version.h", "r")
        cmake = tool.read(tool.ROOT + "/CMakeLists.txt", "r")
        version = self.ok("--version").out.split()[1]
        self.assertIn('#define CAISSON_VERSION "%s"' % version, header)
        self.assertIn("VERSION %s" % version, cmake)

    def test_overview_lists_every_command(self):
        for flag in ("--help", "-h", "help"):
            out = self.ok(flag).out
            for c in COMMANDS:
                self.assertIn("\n  %s " % c, out)

    def test_help_of_every_command(self):
        for c in COMMANDS:
            out = self.ok(c, "--help").out
            self.assertIn("Usage: caisson %s" % c, out)
            self.assertIn("--help", out)
            self.assertEqual(out, self.ok("help", c).out)
            self.assertLessEqual(max(map(len, out.splitlines())), 100, c)

    def test_help_of_no_command_is_usage(self):
        self.fails(USAGE, "help", "frobnicate")

    def test_model_commands_share_their_options(self):
        for c in MODEL_COMMANDS:
            out = self.ok(c, "--help").out
            for o in ("-t, --threads", "-c, --ctx", "-ub, --ubatch-size", "--compute",
                      "--cache-type-k", "--cache-type-v", "--no-mmap", "--convert"):
                self.assertIn(o, out, c)

    def test_missing_arguments_are_usage(self):
        for args in (["run"], ["chat"], ["info"], ["verify"], ["tokenize"], ["detokenize"],
                     ["render", "m"], ["ppl", "m"], ["bench"], ["tensor"], ["convert"],
                     ["convert", "x.gguf"], ["completion"], ["eval", "m"]):
            self.assertIn("--help", self.fails(USAGE, *args).err)

    def test_too_many_arguments_are_usage(self):
        self.assertIn("quotes", self.fails(USAGE, "run", "m.cmf", "two", "words").err)

    def test_unknown_options_are_usage(self):
        for args in (["run", "m", "--frob"], ["run", "m", "-z"], ["info", "m", "--temp", "1"],
                     ["bench", "m", "-uub", "1"]):
            self.fails(USAGE, *args)

    def test_a_typing_error_names_what_was_meant(self):
        for args, meant in ((["run", "m", "--tmep", "0"], "--temp?"),
                            (["run", "m", "--temperature=0"], "--temp?"),
                            (["eval", "m", "--ctx-size", "9"], "--ctx?"),
                            (["rnu", "m"], "run?"), (["help", "tokenise"], "tokenize?")):
            self.assertIn("did you mean " + meant, self.fails(USAGE, *args).err)
        for args in (["run", "m", "--frobnicate"], ["ppl", "m", "f", "--base", "b"],
                     ["run", "m", "--x"], ["frob"], [""], ["x" * 9999]):
            self.assertNotIn("did you mean", self.fails(USAGE, *args).err)

    def test_a_closed_stream_is_not_the_file_that_is_opened_next(self):
        p = subprocess.run([tool.TOOL, "tokenize", tool.TINY], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, preexec_fn=lambda: os.close(0))
        self.assertEqual((p.returncode, p.stdout), (FAILED, b""))
        self.assertIn(b"cannot read", p.stderr)
        p = subprocess.run([tool.TOOL, "tokenize", tool.TINY], input=b"hello",
                           stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
        self.assertEqual(p.returncode, FAILED)
        self.assertIn(b"Bad file descriptor", p.stderr)

    def test_an_option_of_another_command_is_not_taken_for_a_prompt(self):
        self.fails(USAGE, "run", "m.cmf", "--tokens", "1,2")

    def test_missing_value_is_usage(self):
        self.assertIn("value", self.fails(USAGE, "run", "m.cmf", "--temp").err)

    def test_value_for_a_flag_is_usage(self):
        self.fails(USAGE, "run", "m.cmf", "--raw=yes", "x")

    def test_bad_numbers_are_usage(self):
        for args in (["--temp", "warm"], ["--temp", "-1"], ["--temp", "nan"], ["--temp", "inf"],
                     ["--top-p", "1.5"], ["-t", "0"], ["-t", "1e3"], ["-t", "99999999999999999999"],
                     ["-c", "-1"], ["--seed", "-2"], ["-n", "x"], ["-n", "0"], ["-ub", ""],
                     ["--compute", "f16"], ["--cache-type-k", "q4_0"]):
            r = self.fails(USAGE, "run", "m.cmf", "x", *args)
            self.assertNotIn("Traceback", r.err)

    def test_forms_of_options_are_equal(self):
        # All reach the opening of the file, which fails: the option was understood.
        for args in (["-t", "2"], ["-t2"], ["--threads", "2"], ["--threads=2"], ["-ub", "8"],
                     ["-ub8"], ["-ctk", "f32"], ["--cache-type-k=f32"]):
            r = self.fails(FAILED, "run", "/nonexistent/m.cmf", "x", *args)
            self.assertIn("/nonexistent/m.cmf", r.err)

    def test_double_dash_ends_options(self):
        r = self.fails(FAILED, "run", "/nonexistent/m.cmf", "--", "--not-an-option")
        self.assertIn("/nonexistent", r.err)

    def test_control_characters_of_arguments_are_not_echoed(self):
        r = self.fails(USAGE, "run", "m", "--\033[31mred")
        self.assertNotIn("\033[31m", r.err)
        r = self.fails(FAILED, "info", "/nonexistent/\033]0;title\007")
        self.assertNotIn("\033]", r.err)

    def test_token_ids_must_be_numbers(self):
        for ids in ("1,,2", "1,", ",1", "a", "1;2", "-1", "99999999999", "1 2"):
            self.fails(USAGE, "detokenize", "/nonexistent/m.cmf", ids) if not ids.startswith("-") \
                else self.fails(USAGE, "detokenize", "/nonexistent/m.cmf", "--", ids)

    def test_bad_tensor_rules_are_usage(self):
        for rule in ("x", "=f16", "x=", "x=frob"):
            self.fails(USAGE, "convert", "/nonexistent", "-o", self.path("o"), "--tensor", rule)

    def test_bad_quant_lists_the_types(self):
        r = self.fails(USAGE, "convert", "/nonexistent", "-o", self.path("o"), "--quant", "q9")
        self.assertIn("q8_row", r.err)

    def test_two_prompts_are_usage(self):
        self.fails(USAGE, "run", "m.cmf", "one", "-p", "two")

    def test_full_disk_is_told(self):
        with open("/dev/full", "wb") as full:
            p = subprocess.run([tool.TOOL, "--help"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(p.returncode, FAILED)
        self.assertIn(b"standard output", p.stderr)

    def test_every_man_page_formats(self):
        for c in [None] + COMMANDS:
            page = self.ok("man", *([c] if c else [])).out
            self.assertTrue(page.startswith(".TH CAISSON"))
            self.assertIn(".SH EXIT STATUS", page)
            if shutil.which("groff"):
                p = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-z"], input=page.encode(),
                                   stderr=subprocess.PIPE)
                self.assertEqual(p.stderr.decode(), "", c)

    def test_man_page_of_no_command_is_usage(self):
        self.fails(USAGE, "man", "frobnicate")

    def test_completions_parse_and_know_every_command(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.ok("completion", shell).out
            for c in COMMANDS:
                self.assertIn(c, script)
            if shutil.which(shell):
                p = subprocess.run([shell, "-n"], input=script.encode(), stderr=subprocess.PIPE)
                self.assertEqual(p.returncode, 0, p.stderr)

    def test_completion_of_unknown_shell_is_usage(self):
        self.fails(USAGE, "completion", "tcsh")

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash_completion_completes(self):
        script = self.ok("completion", "bash").out
        ask = script + """
COMP_WORDS=(caisson run m.cmf --compute ''); COMP_CWORD=4; _caisson; echo "${COMPREPLY[*]}"
COMP_WORDS=(caisson ver); COMP_CWORD=1; _caisson; echo "${COMPREPLY[*]}"
COMP_WORDS=(caisson run --no-d); COMP_CWORD=2; _caisson; echo "${COMPREPLY[*]}"
"""
        out = subprocess.run(["bash"], input=ask.encode(), stdout=subprocess.PIPE).stdout.decode()
        self.assertEqual(out.splitlines(), ["f32 int8", "verify", "--no-display-prompt"])


if __name__ == "__main__":
    tool.main()
