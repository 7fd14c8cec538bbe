#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat on a terminal (a pty) and through a pipe; Ctrl-C; what a model may not do to a terminal."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import tool
from tool import INTERRUPTED, OK, TINY

GREEDY = ["--temp", "0"]
# Long enough to be interrupted: the tiny model never ends this answer by itself.
ENDLESS = ["--temp", "0", "-c", "60000"]


class Terminal:
    """caisson on a pty of its own."""

    def __init__(self, *args, environ=None, columns=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(tool.TOOL, [tool.TOOL, *map(str, args)], environ or tool.env())
        self.text = ""
        self.rc = None

    def read(self, seconds=0.1):
        r, _, _ = select.select([self.fd], [], [], seconds)
        if not r:
            return True
        try:
            got = os.read(self.fd, 65536)
        except OSError:
            return False
        self.text += got.decode("utf-8", "replace")
        return bool(got)

    def expect(self, pattern, seconds=60):
        """Reads until the pattern comes; what was read up to it is taken away and returned."""
        end = time.monotonic() + seconds
        while True:
            m = re.search(pattern, self.text)
            if m:
                before, self.text = self.text[:m.end()], self.text[m.end():]
                return before
            if time.monotonic() > end or not self.read():
                raise AssertionError("no %r in %r" % (pattern, self.text[-2000:]))

    def send(self, text):
        os.write(self.fd, text.encode())

    def prompt(self, seconds=60):
        """The prompt has come and the line editor has the terminal. Keys sent between the two would
        go through line mode: the kernel makes a NUL of a Ctrl-D there."""
        self.expect("> ")
        end = time.monotonic() + seconds
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            if time.monotonic() > end:
                raise AssertionError("the prompt came, the line editor did not")
            time.sleep(0.002)

    def leave(self):
        """Ctrl-D at the prompt."""
        self.send("\x04")
        return self.wait()

    def wait(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                while self.read(0.05) and select.select([self.fd], [], [], 0)[0]:
                    pass
                self.rc = os.waitstatus_to_exitcode(status)
                return self.rc
        raise AssertionError("still running; " + self.text[-500:])

    def close(self):
        if self.rc is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (OSError, ChildProcessError):
                pass
        os.close(self.fd)


class Chat(tool.Case):
    def terminal(self, *args, **more):
        t = Terminal(*args, environ=tool.env(XDG_STATE_HOME=self.dir, **more))
        self.addCleanup(t.close)
        return t

    def test_pipe_gives_answers_alone(self):
        r = self.ok("chat", TINY, *GREEDY, "-n", 6, stdin=b"Hello\nAgain\n")
        one = self.ok("run", TINY, "Hello", *GREEDY, "-n", 6).out
        self.assertTrue(r.out.startswith(one.rstrip("\n")))
        self.assertNotIn(">", r.out.replace(one, ""))

    def test_second_turn_equals_a_cold_rendering(self):
        # The kept prefix gives the same tokens as the whole conversation evaluated anew.
        saved = self.path("talk.json")
        r = self.ok("chat", TINY, *GREEDY, "-n", 6,
                    stdin=("Hello\nAgain\n/save %s\n" % saved).encode())
        talk = json.loads(tool.read(saved))
        self.assertEqual([m["role"] for m in talk], ["user", "assistant", "user", "assistant"])
        ids = self.ok("render", TINY, "-", "--ids", stdin=json.dumps(talk[:3]).encode()).out.strip()
        g = self.ok("eval", TINY, "--tokens", ids, "--decode", 6, "--compute", "int8", "--json").json
        want = self.ok("detokenize", TINY, "--skip-special", ",".join(map(str, g["generated"]))).out
        self.assertTrue(want.startswith(talk[3]["content"]) or talk[3]["content"].startswith(want))
        self.assertIn(talk[3]["content"], r.out)

    def test_commands_through_a_pipe(self):
        saved = self.path("talk.json")
        r = self.ok("chat", TINY, *GREEDY, "-n", 3, stdin=(
            "/system Be brief.\nHello\n/save %s\n/clear\n/load %s\n/set temp 0.5\n/set temp x\n"
            "/set\n/help\n/nope\n/system\n/quit\nnever\n" % (saved, saved)).encode())
        talk = json.loads(tool.read(saved))
        self.assertEqual(talk[0], {"role": "system", "content": "Be brief."})
        for word in ("saved 3 messages", "cleared", "loaded 3 messages", "temp = 0.5",
                     "temp must be", "top_k", "/clear", "no command /nope", "system: Be brief."):
            self.assertIn(word, r.err)

    def test_bad_conversations_are_refused(self):
        bad = self.path("bad.json")
        for text in (b"", b"{}", b"[1]", b'[{"role": 1, "content": "x"}]', b"[" * 5000,
                     b'[{"role": "user", "content": "a\\u0000b"}]',
                     b'[{"role": "assistant", "content": "x", "tool_calls": [{"name": "f"}]}]'):
            with open(bad, "wb") as f:
                f.write(text)
            self.fails(tool.FAILED, "chat", TINY, "--load", bad)

    def test_a_prompt_that_does_not_fit_fails_a_pipe(self):
        r = self.fails(tool.FAILED, "chat", TINY, "-c", 8, stdin=b"a b c d e f g h i j k l m n\n")
        self.assertRegex(r.err, r"want 8, got \d+")

    def test_a_message_with_a_nul_is_refused_not_cut(self):
        r = self.fails(tool.FAILED, "chat", TINY, *GREEDY, "-n", 2, stdin=b"one\0two\nthree\n")
        self.assertIn("NUL", r.err)
        self.assertEqual(r.out, "")

    def test_backslash_joins_lines(self):
        saved = self.path("t.json")
        self.ok("chat", TINY, *GREEDY, "-n", 2, stdin=("one\\\ntwo\n/save %s\n" % saved).encode())
        self.assertEqual(json.loads(tool.read(saved))[0]["content"], "one\ntwo")
        self.assertTrue(self.ok("chat", TINY, *GREEDY, "-n", 2, stdin=b"one\\").out) # then the end

    def test_terminal_answers_and_leaves_on_ctrl_d(self):
        t = self.terminal("chat", TINY, *GREEDY, "-n", 5)
        t.prompt()
        t.send("Hello\r")
        t.expect(r"decode .*tokens/s")
        t.prompt()
        self.assertEqual(t.leave(), OK)

    def test_ctrl_c_stops_the_answer_and_a_second_leaves(self):
        t = self.terminal("chat", TINY, *ENDLESS)
        t.prompt()
        t.send("Hello\r")
        t.expect("\033\\[32m.")  # the answer has begun
        t.send("\x03")
        t.expect("stopped")
        t.prompt()
        t.send("/system\r")  # the conversation goes on
        t.expect("system: ")
        t.prompt()
        t.send("\x03")
        self.assertEqual(t.wait(), OK)

    def test_ctrl_d_during_an_answer_leaves_behind_it(self):
        t = self.terminal("chat", TINY, *ENDLESS, "-n", 4000)
        t.prompt()
        t.send("Hello\r")
        t.expect("\033\\[32m.")  # the answer has begun
        t.send("\x04")
        before = t.text
        self.assertEqual(t.wait(), OK)  # nothing more is typed
        self.assertRegex(before + t.text, r"decode [0-9.]+ tokens/s\]")  # the answer went on to its end

    def test_a_line_typed_during_an_answer_is_the_next_message(self):
        t = self.terminal("chat", TINY, *ENDLESS, "-n", 4000)
        t.prompt()
        t.send("Hello\r")
        t.expect("\033\\[32m.")
        t.send("/set top_k 7\r\x04")
        t.expect("top_k = 7")
        self.assertEqual(t.wait(), OK)

    def test_ctrl_c_at_the_prompt_with_half_a_line(self):
        t = self.terminal("chat", TINY, *GREEDY)
        t.prompt()
        t.send("half a li")
        time.sleep(0.2)
        t.send("\x03")
        self.assertEqual(t.wait(), OK)

    def test_terminal_is_left_as_it_was(self):
        t = self.terminal("chat", TINY, *GREEDY)
        before = termios.tcgetattr(t.fd)
        t.prompt()
        t.send("\x03")
        self.assertEqual(t.wait(), OK)
        self.assertEqual(termios.tcgetattr(t.fd)[:4], before[:4])

    def test_history_comes_back_with_the_arrow(self):
        t = self.terminal("chat", TINY, *GREEDY, "-n", 1)
        t.prompt()
        t.send("/set top_k 7\r")
        t.expect("top_k = 7")
        t.prompt()
        t.leave()
        path = os.path.join(self.dir, "caisson", "chat_history")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        t = self.terminal("chat", TINY, *GREEDY, "-n", 1)
        t.prompt()
        t.send("\033[A\r")
        t.expect("top_k = 7")

    def test_letters_beyond_ascii_can_be_typed(self):
        saved = self.path("t.json")
        t = self.terminal("chat", TINY, *GREEDY, "-n", 1)
        t.prompt()
        t.send("na\u00efve \u65e5\u672c \U0001f600\r")
        t.expect("tokens/s")
        t.prompt()
        t.send("/save %s\r" % saved)
        t.expect("saved")
        t.prompt()  # before it the terminal is not in the editor's hands
        t.leave()
        self.assertEqual(json.loads(tool.read(saved))[0]["content"], "na\u00efve \u65e5\u672c \U0001f600")

    def test_no_colour_when_the_person_says_so(self):
        t = self.terminal("chat", TINY, *GREEDY, "-n", 3, NO_COLOR="1")
        t.prompt()
        t.send("Hello\r")
        seen = t.expect("tokens/s")
        self.assertNotIn("\033[32m", seen)
        self.assertNotIn("\033[2m", seen)


class Interrupt(tool.Case):
    def start(self, *args, **kw):
        p = subprocess.Popen([tool.TOOL, *map(str, args)], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=tool.env(), **kw)
        for step in (p.stdout.close, p.stderr.close, p.wait, p.kill):
            self.addCleanup(step)
        return p

    def test_run_ends_with_130_and_its_figures(self):
        p = self.start("run", TINY, "Hello", "--ignore-eos", *ENDLESS)
        p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, INTERRUPTED)
        self.assertIn(b"tokens/s", err)

    def test_in_the_background_of_a_script_it_goes_on(self):
        """There a shell has SIGINT ignored, and Ctrl-C is for what runs in front."""
        ignored = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        p = self.start("run", TINY, "Hello", "--ignore-eos", *ENDLESS, "-n", 3000,
                       preexec_fn=ignored)
        p.stdout.read(1)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, OK)

    def test_bench_ends_with_130(self):
        p = self.start("bench", TINY, "-p", "0", "-n", "60000", "-r", "1000")
        time.sleep(0.5)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, INTERRUPTED)

    def test_tokenize_ends_at_the_first(self):
        text = self.path("long.txt")
        with open(text, "wb") as f:
            f.write(b"a" * (60 << 20))
        p = self.start("tokenize", TINY, "-f", text)
        time.sleep(0.5)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, INTERRUPTED)

    def test_a_reader_that_goes_away_ends_run(self):
        p = self.start("run", TINY, "Hello", "--ignore-eos", *ENDLESS)
        p.stdout.read(1)
        p.stdout.close()
        self.assertNotEqual(p.wait(timeout=60), 0)


class Bar(tool.Case):
    def convert(self, columns, **more):
        """What a terminal of so many columns gets of a conversion."""
        t = Terminal("convert", TINY, "-o", self.path("o.cmf"), "-f", "--quant", "f16",
                     environ=tool.env(**more), columns=columns)
        self.addCleanup(t.close)
        self.assertEqual(t.wait(), OK)
        return t.text

    def test_a_bar_is_never_wider_than_the_terminal(self):
        for columns in (200, 40, 12):
            bars = [b.split("\r")[0] for b in self.convert(columns).split("\r\033[K")[1:]]
            bars = [b for b in bars if "[" in b]
            self.assertTrue(bars)
            self.assertLess(max(map(len, bars)), columns, bars)

    def test_a_dumb_terminal_gets_no_escape_sequences(self):
        self.assertNotIn("\033", self.convert(80, TERM="dumb"))


class ModelText(tool.Case):
    def test_control_characters_do_not_reach_a_terminal(self):
        # Ids whose text is an escape sequence, through the filter that answers go through.
        ids = self.ok("tokenize", TINY, stdin=b"\033[31mred\033[0m\007").out.strip()
        self.assertEqual(self.ok("detokenize", TINY, ids).raw, b"\033[31mred\033[0m\007")
        t = Terminal("detokenize", TINY, ids)
        self.addCleanup(t.close)
        self.assertEqual(t.wait(), OK)
        self.assertIn("[31mred", t.text)
        self.assertNotIn("\033", t.text)
        self.assertNotIn("\007", t.text)


if __name__ == "__main__":
    tool.main()
