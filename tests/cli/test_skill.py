#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Skills from the command line, on the reference's tiny file with two of them.

What transformers says of it is tests/golden/cli/skill_route.json (tests/oracle/skill_route.py)."""
import json
import math
import os

import tool
from tool import FAILED, USAGE

SKILLS = os.path.join(tool.FILES, "tiny-skills.cmf")
ORACLE = json.loads(tool.read(os.path.join(tool.ROOT, "tests", "golden", "cli",
                                           "skill_route.json")))


class List(tool.Case):
    def test_list(self):
        skills = {s["id"]: s for s in self.ok("skill", "list", SKILLS, "--json").json}
        self.assertEqual(skills["sql"]["layers"], [1])
        self.assertEqual(skills["sql"]["selection"], {"metric": "mse", "phi_layer": 1, "rank": 2})
        self.assertEqual(skills["poem"]["selection"]["metric"], "mse_unit")
        self.assertEqual(len(self.ok("skill", "list", SKILLS).out.splitlines()), 2)
        self.assertEqual(self.ok("skill", "list", tool.TINY).out, "no skills\n")


class Route(tool.Case):
    def test_errors_are_those_of_the_format(self):
        for want in ORACLE["routes"]:
            r = self.ok("skill", "route", SKILLS, "-p", want["prompt"], "--json").json
            self.assertEqual((r["winner"], r["is_novel"]), (want["winner"], want["is_novel"]))
            for got in r["skills"]:
                for key in ("raw", "error"):
                    self.assertAlmostEqual(got[key] / want["scores"][got["id"]][key], 1, delta=1e-5)
            for key in ("margin", "novelty"):
                self.assertAlmostEqual(r[key], want[key], delta=1e-5)

    def test_the_bits_do_not_depend_on_threads_or_batches(self):
        args = ("skill", "route", SKILLS, "-p", ORACLE["routes"][1]["prompt"], "--json")
        self.assertEqual(self.ok(*args, "-t", "1").raw, self.ok(*args, "-t", "3").raw)

    def test_run_auto_is_run_with_the_winner(self):
        args = ("run", SKILLS, "--raw", "-p", "hello world", "--temp", "0", "-n", "12", "--task",
                "none")
        r = self.ok(*args, "--skill", "auto")
        self.assertIn("poem", r.err)
        self.assertEqual(r.out, self.ok(*args, "--skill", "poem").out)
        self.assertNotEqual(r.out, self.ok(*args).out)

    def test_a_file_without_descriptors_runs_its_base(self):
        args = ("run", tool.TINY, "--raw", "-p", "hello world", "--temp", "0", "-n", "4")
        r = self.ok(*args, "--skill", "auto")
        self.assertEqual(r.out, self.ok(*args).out)
        self.assertIn("describes", r.err)
        self.assertIsNone(self.ok("skill", "route", tool.TINY, "-p", "a", "--json").json["winner"])

    def test_auto_is_no_id(self):
        self.fails(FAILED, "chat", SKILLS, "--skill", "auto")
        self.fails(USAGE, "skill", "route", SKILLS)
        self.fails(USAGE, "skill", "praise", SKILLS)


class Blend(tool.Case):
    def test_blends_are_weighted_sums_of_tensors(self):
        for want in ORACLE["blends"]:
            parts = ",".join("%s=%g" % part for part in want["parts"].items())
            r = self.ok("skill", "explain", SKILLS, "-p", want["prompt"], "--blend", parts, "-ctk", "f32",
                        "-ctv", "f32", "--json").json
            self.assertEqual([t["id"] for t in r["top"]], want["ids"])
            for got, p in zip(r["top"], want["p"]):
                self.assertAlmostEqual(got["p"] / p, 1, delta=1e-5)
            self.assertEqual(r["confidence"], r["top"][0]["p"])

    def test_auto_takes_the_two_nearest(self):
        args = ("run", SKILLS, "--raw", "-p", "hello world", "--temp", "0", "-n", "12")
        error = {k: v["error"] for k, v in ORACLE["routes"][0]["scores"].items()}
        w = math.exp((error["sql"] - error["poem"]) / 0.4)
        self.assertEqual(self.ok(*args, "--blend", "auto").out,
                         self.ok(*args, "--blend", "sql=1,poem=%.9g" % w).out)

    def test_what_is_no_blend_is_refused(self):
        for bad in ("", "sql", "sql=", "=1", "sql=0", "sql=-1", "sql=nan", "sql=1,", "sql=1 2"):
            self.fails(USAGE, "run", SKILLS, "-p", "a", "--blend", bad)
        self.fails(USAGE, "run", SKILLS, "-p", "a", "--blend", "sql=1", "--skill", "sql")
        self.assertIn("poem sql",
                      self.fails(FAILED, "run", SKILLS, "-p", "a", "--blend", "sql=1,x=1").err)


class Chat(tool.Case):
    def test_skills_change_between_requests(self):
        answer = "hi\n/clear\n"
        talk = "/skill sql\n" + answer + "/skill poem\n" + answer + "/skill sql\n" + answer
        r = self.ok("chat", SKILLS, "--temp", "0", "-n", "12", "--task", "none",
                    stdin=talk.encode())
        alone = [self.ok("chat", SKILLS, "--temp", "0", "-n", "12", "--task", "none", "--skill", s,
                         stdin=b"hi\n").out for s in ("sql", "poem")]
        self.assertNotEqual(alone[0], alone[1])
        self.assertEqual(r.out, alone[0] + alone[1] + alone[0])

    def test_an_unknown_skill_changes_nothing(self):
        r = self.ok("chat", SKILLS, "--temp", "0", "-n", "4", "--skill", "sql",
                    stdin=b"/skill prose\nhi\n")
        self.assertIn("poem sql", r.err)
        self.assertEqual(r.out, self.ok("chat", SKILLS, "--temp", "0", "-n", "4", "--skill", "sql",
                                        stdin=b"hi\n").out)


class Dynamic(tool.Case):
    ARGS = ("run", SKILLS, "--raw", "-p", ORACLE["dynamic"]["prompt"], "--temp", "0", "--compute",
            "f32", "-ctk", "f32", "-ctv", "f32", "--ignore-eos", "--route-dynamic")

    def test_looks_see_what_the_format_says(self):
        want = ORACLE["dynamic"]
        r = self.ok(*self.ARGS, "-n", str(len(want["ids"])), "--trace", "--json").json["trace"]
        self.assertEqual([t["id"] for t in r], want["ids"][:-1])
        looks = {i + 1: t["error"] for i, t in enumerate(r) if t["is_look"]}
        checks = want["checks"][:len(looks)]  # the last token of all is not evaluated
        self.assertEqual(sorted(looks), [c["n_decoded"] for c in checks])
        for c in checks:  # poem replaces a norm too: only sql takes part
            self.assertAlmostEqual(looks[c["n_decoded"]] / c["scores"]["sql"]["error"], 1, delta=1e-4)
        self.assertTrue(all(t["skill"] is None for t in r))

    def test_hysteresis_by_options(self):
        r = self.ok(*self.ARGS, "-n", "24", "--route-e-on", "1.2", "--route-e-off", "1.3", "--trace")
        self.assertEqual([line.split()[0] for line in r.err.splitlines() if "switch" in line], ["15"])
        self.fails(FAILED, *self.ARGS, "--route-e-on", "0.9")

    def test_what_goes_together(self):
        self.fails(USAGE, *self.ARGS, "--skill", "sql")
        self.fails(USAGE, "run", SKILLS, "-p", "a", "--trace")
        self.assertIn("can be switched to",
                      self.fails(FAILED, "run", tool.TINY, "-p", "a", "--route-dynamic").err)


if __name__ == "__main__":
    tool.main()
