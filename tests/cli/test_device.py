# SPDX-License-Identifier: Apache-2.0
"""A disk that fails while a model runs: a loop device whose file is cut. The answer ends with an
error that names what could not be read, the process lives, and the next answer comes.

Needs root, mkfs.ext4 and loop devices; skipped elsewhere.
"""
import os
import shutil
import subprocess

import tool
from test_chat import Terminal

IMAGE_BYTES = 24 << 20


def command(*args):
    p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return p.returncode == 0, p.stdout.decode("utf-8", "replace").strip()


class Device(tool.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("mount") is None:
            self.skipTest("needs root, mkfs.ext4 and mount")
        self.image, self.disk = self.path("disk.img"), self.path("disk")
        self.model = self.path("m.waste")
        os.mkdir(self.disk)
        with open(self.image, "wb") as f:
            f.truncate(IMAGE_BYTES)
        ok, why = command("mkfs.ext4", "-q", "-F", self.image)
        self.assertTrue(ok, why)
        self.mount()
        self.ok("synth", "--family", "kimi_linear", "--seed", 7, "-o", self.model)
        self.floor = self.ok("plan", self.model, "--json", "--no-probe", "-c", 512,
                             "--stream-trunk").json["floor_bytes"]

    def mount(self, *options):
        ok, why = command("mount", "-o", ",".join(("loop", *options)), self.image, self.disk)
        if not ok:
            self.skipTest("no loop devices: " + why)
        self.addCleanup(command, "umount", "-l", self.disk)

    def move(self, names):
        """These files to the device, links in their place; then nothing of them is in memory."""
        for name in names:
            path = os.path.join(self.model, name)
            shutil.move(path, os.path.join(self.disk, name))
            os.symlink(os.path.join(self.disk, name), path)
        ok, why = command("umount", self.disk)
        self.assertTrue(ok, why)
        self.mount("ro", "noload")

    def check(self, error, *options):
        content = tool.read(self.image)
        t = Terminal("chat", self.model, "--temp", "0", "-n", "6", "-c", "512", "--compute", "f32",
                     "-t", "2", *options, environ=tool.env(XDG_STATE_HOME=self.dir))
        self.addCleanup(t.close)
        t.prompt()
        t.send("hello\r")
        t.expect("tokens/s")
        t.prompt()
        os.truncate(self.image, 0)
        t.send("/clear\r")
        t.prompt()
        t.send("hello\r")
        t.expect(error)
        t.prompt()
        with open(self.image, "r+b") as f:
            f.write(content)
        t.send("hello\r")
        t.expect("tokens/s")
        t.prompt()
        self.assertEqual(t.leave(), tool.OK)

    def test_experts(self):
        self.move("experts-L%d.bin" % i for i in range(1, 5))
        floor = self.ok("plan", self.model, "--json", "--no-probe", "-c", 512).json["floor_bytes"]
        for io in ("threads", "buffered"):
            self.check(r"layer [1-4], expert \d+: [^\n]*Input/output error", "--budget", floor,
                       "--io", io)

    def test_layers(self):
        self.move(["trunk.bin"])
        self.check(r"trunk, model\.layers\.\d+\.[^\n]*Input/output error", "--budget", self.floor,
                   "--stream-trunk")


if __name__ == "__main__":
    tool.main()
