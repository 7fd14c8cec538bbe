#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Skills from the command line, on the reference's tiny file with two of them."""
import os

import tool

SKILLS = os.path.join(tool.FILES, "tiny-skills.cmf")


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


if __name__ == "__main__":
    tool.main()
