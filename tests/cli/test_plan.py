# SPDX-License-Identifier: Apache-2.0
"""plan and --budget: what the tool plans against what the manifest says, and whether it keeps it."""
import json
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tool

WASTE = os.path.join(tool.ROOT, "tests", "golden", "warp", "vq3r-base.waste")
SLACK = 64 << 20  # bytes of peak memory above the budget: the program itself


def peak_bytes(*args):
    """Peak resident memory of caisson ARGS, which must succeed."""
    code = ("import resource, subprocess, sys\n"
            "rc = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n"
            "print(rc, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    out = subprocess.run([sys.executable, "-c", code, tool.TOOL, *map(str, args)],
                         stdout=subprocess.PIPE, check=True, timeout=100).stdout.split()
    assert out[0] == b"0", out
    return int(out[1]) * 1024


EMBED = "model.embed_tokens.weight"


class Plan(tool.Case):
    def plan(self, *args):
        return self.ok("plan", WASTE, "--json", *args).json

    def test_figures_are_those_of_the_manifest(self):
        with open(os.path.join(WASTE, "manifest.json"), encoding="utf-8") as f:
            manifest = json.load(f)
        p = self.plan("--no-probe")
        top_k = manifest["config"]["num_experts_per_token"]
        layers = manifest["layers"].values()
        records = [bank["bytes"] // bank["experts"] for bank in layers]
        self.assertEqual(p["bytes_per_token"], top_k * sum(records))
        self.assertEqual(p["min_cache_bytes"], max(4, top_k) * max(records))
        trunk = [t["bytes"] for t in manifest["trunk"] if "embed_tokens" not in t["name"]]
        self.assertGreaterEqual(p["weights_bytes"], sum(trunk))
        self.assertLess(p["weights_bytes"], sum(trunk) + 4096 * len(trunk))
        self.assertEqual(p["floor_bytes"], p["weights_bytes"] + p["kv_bytes"] + p["buffer_bytes"] +
                         p["min_cache_bytes"])
        self.assertEqual((p["disk_bytes_per_s"], p["tokens_per_s"]), (0, None))
        at_floor = self.plan("--no-probe", "--budget", p["floor_bytes"])
        self.assertEqual(at_floor["cache_bytes"], p["min_cache_bytes"])
        enough = self.plan("--no-probe", "--budget", p["resident_bytes"])
        self.assertEqual(enough["cache_bytes"], sum(bank["bytes"] for bank in layers))
        self.assertEqual(enough["read_bytes_per_token"], 0)

    def test_the_floor_depends_on_context_and_kv_types(self):
        a = self.plan("--no-probe", "-c", 512)
        b = self.plan("--no-probe", "-c", 8192)
        c = self.plan("--no-probe", "-c", 8192, "-ctk", "f32", "-ctv", "f32")
        self.assertTrue(a["floor_bytes"] < b["floor_bytes"] < c["floor_bytes"])
        self.assertEqual(b["floor_bytes"] - a["floor_bytes"], b["kv_bytes"] - a["kv_bytes"])

    def test_a_context_of_0_is_the_one_that_the_model_was_made_for(self):
        made_for = {WASTE: 4096, os.path.join(os.path.dirname(WASTE), "vq3r-rope.waste"): 131072}
        for model, n_ctx in made_for.items():
            self.assertEqual(self.ok("plan", model, "--no-probe", "-c", 0, "--json").json["ctx"],
                             n_ctx)

    def test_the_disk_is_measured(self):
        floor = self.plan("--no-probe")["floor_bytes"]
        p = self.plan("--budget", floor)
        self.assertGreater(p["disk_bytes_per_s"], 0)
        self.assertAlmostEqual(p["tokens_per_s"],
                               p["disk_bytes_per_s"] / p["read_bytes_per_token"], delta=1)
        self.assertIn("the disk allows", self.ok("plan", WASTE, "--budget", floor).out)

    def test_sizes(self):
        for text, size in (("20000000", 20000000), ("30M", 30 << 20), ("1G", 1 << 30),
                           ("40000K", 40000 << 10)):
            self.assertEqual(self.plan("--no-probe", "--budget", text)["budget_bytes"], size)
        for text in ("", "x", "1T", "1.5G", "-1", "0", "1 G", "99999999999G"):
            self.fails(tool.USAGE, "plan", WASTE, "--budget=" + text)

    def test_a_dense_model(self):
        p = self.ok("plan", tool.TINY, "--json").json
        self.assertEqual((p["min_cache_bytes"], p["bytes_per_token"]), (0, 0))
        self.assertIn("floor", self.ok("plan", tool.TINY).out)
        self.fails(tool.FAILED, "plan", tool.TINY, "--budget", p["floor_bytes"] - 1)

    def test_more_than_the_limit(self):
        """The KV cache of a long context, where this process may have 100 MiB of data."""
        limits = [(resource.RLIMIT_DATA, 100 << 20)]
        if tool.run("--version", limits=limits).rc != tool.OK:
            self.skipTest("a sanitizer reserves more than that")
        p = self.ok("plan", tool.TINY, "--json", limits=limits).json
        self.assertTrue(p["fits"])
        self.assertEqual((p["limit_bytes"], p["limit_by"]), (100 << 20, "RLIMIT_DATA"))
        long = ["plan", tool.TINY, "-c", 1 << 20]
        p = self.ok(*long, "--json", limits=limits).json
        self.assertGreater(p["budget_bytes"], 100 << 20)
        self.assertFalse(p["fits"])
        self.assertIn("does not run here", self.ok(*long, limits=limits).out)
        self.assertNotIn("does not run here", self.ok("plan", tool.TINY, limits=limits).out)

    def test_a_streamed_trunk_is_as_small_as_two_layers(self):
        with open(os.path.join(WASTE, "manifest.json"), encoding="utf-8") as f:
            trunk = json.load(f)["trunk"]
        parts = {}  # layers' matrices and the head
        for t in trunk:
            name = t["name"].split(".")
            matrix = len(t["shape"]) == 2 and t["shape"][0] > 1
            part = int(name[2]) if name[1] == "layers" else "head" if name[0] == "lm_head" else None
            if matrix and part is not None:
                parts[part] = parts.get(part, 0) + t["bytes"]
        parts = [parts[i] for i in sorted(p for p in parts if p != "head")] + [parts["head"]]
        slots = max(parts[0::2]) + max(parts[1::2])
        whole = self.plan("--no-probe")
        p = self.plan("--no-probe", "--stream-trunk")
        self.assertGreaterEqual(p["min_trunk_bytes"], slots)
        self.assertLess(p["min_trunk_bytes"], slots + 2 * 4096 + 64 * len(trunk))
        self.assertEqual(p["floor_bytes"], p["weights_bytes"] + p["kv_bytes"] + p["buffer_bytes"] +
                         p["min_cache_bytes"] + p["min_trunk_bytes"])
        self.assertLess(p["floor_bytes"], whole["floor_bytes"])
        at_floor = self.plan("--no-probe", "--stream-trunk", "--budget", p["floor_bytes"])
        self.assertEqual(at_floor["read_trunk_bytes_per_token"] // 64 * 64,
                         at_floor["read_trunk_bytes_per_token"])
        self.assertGreaterEqual(at_floor["read_trunk_bytes_per_token"], sum(parts))
        self.assertLess(at_floor["read_trunk_bytes_per_token"], sum(parts) + 64 * len(trunk))
        enough = self.plan("--no-probe", "--stream-trunk", "--budget",
                           whole["floor_bytes"] + 4096 * len(parts))
        self.assertEqual(enough["read_trunk_bytes_per_token"], 0)

    def check_unpacked(self, dtype, unpacked_of, stays_in_file=()):
        """Beside what the file has, each part in 64 bytes of memory."""
        path = self.path(dtype + ".cmf")
        self.ok("quantize", tool.TINY, "-o", path, "--quant", dtype)
        tensors = [t for t in self.ok("tensor", path, "--json").json
                   if t["name"] not in stays_in_file]
        parts = [t["bytes"] for t in tensors]
        parts += [unpacked_of(*t["shape"], t["bytes"]) for t in tensors
                  if t["dtype"] == dtype and t["name"] != EMBED]  # nobody multiplies with that
        self.assertGreater(len(parts), len(tensors))
        whole = sum(-(-n // 64) * 64 for n in parts)
        p = self.ok("plan", path, "--json", "--no-probe").json
        self.assertEqual(p["weights_bytes"], whole)
        return p

    def test_unpacked_scales_count_as_weights(self):
        """A float for each group of 32, an even number a row."""
        p = self.check_unpacked(
            "q4tp", lambda rows, cols, _: rows * ((cols // 32 + 1) // 2 * 2) * 4, [EMBED])
        path = self.path("q4tp.cmf")
        (table,) = [t for t in self.ok("tensor", path, "--json").json if t["name"] == EMBED]
        self.assertEqual(table["dtype"], "q4tp")
        self.assertEqual(p["table_bytes"], -(-table["bytes"] // 64) * 64)
        self.assertIn("embedding", self.ok("plan", path, "--no-probe").out)

    def test_unpacked_outliers_count_as_weights(self):
        """Four bytes for each row and one more, six for each outlier and seven more."""
        def unpacked(rows, cols, n_bytes):
            n = (n_bytes - rows * cols // 32 * 6 - 4) // 6
            return 4 * (rows + 1) + 6 * (n + 7) if n > 0 else 0
        p = self.check_unpacked("q1s", unpacked)
        self.assertEqual(p["table_bytes"], 0)  # q1s has no rows to be read: it is in memory

    def test_what_is_no_model(self):
        self.fails(tool.FAILED, "plan", self.path("nothing.waste"))
        self.fails(tool.FAILED, "plan", __file__)


class Budget(tool.Case):
    ARGS = ("eval", WASTE, "--tokens", ",".join(str(i * 7 % 250) for i in range(40)), "-n", 8,
            "--compute", "f32", "-c", 64)

    def setUp(self):
        super().setUp()
        self.floor = tool.run("plan", WASTE, "--json", "--no-probe", "-c", 64).json["floor_bytes"]

    def test_at_the_floor_it_works_and_below_it_is_refused(self):
        want = self.ok(*self.ARGS, "--json").json
        for threads in (1, 4):
            for io in ("threads", "buffered"):
                for ahead in ((), ("--no-lookahead",)):
                    got = self.ok(*self.ARGS, "--json", "--budget", self.floor, "-t", threads,
                                  "--io", io, *ahead).json
                    self.assertEqual(got, want)
        r = self.fails(tool.FAILED, *self.ARGS, "--budget", self.floor - 1)
        self.assertIn("--stream-trunk, which needs less", r.err)
        self.assertIn(str(self.floor), r.err)
        self.assertIn(str(self.floor - 1), r.err)

    def test_layers_are_read_below_the_floor(self):
        for model in (WASTE, tool.TINY):
            args = (*self.ARGS[:1], model, *self.ARGS[2:], "--stream-trunk")
            floor = tool.run("plan", model, "--json", "--no-probe", "-c", 64,
                             "--stream-trunk").json["floor_bytes"]
            want = self.ok(*args[:-1], "--json").json
            for threads, budget, io in ((1, floor, "threads"), (4, floor + 50000, "buffered"),
                                        (2, "1G", "threads")):
                got = self.ok(*args, "--json", "--budget", budget, "-t", threads, "--io", io).json
                self.assertEqual(got, want)
            r = self.ok(*args, "--budget", floor, "--stats")
            self.assertIn("layers: ", r.err)
            r = self.fails(tool.FAILED, *args, "--budget", floor - 1)
            self.assertIn(str(floor), r.err)
            self.assertIn(str(floor - 1), r.err)

    def test_statistics_tell_how_good_guesses_are(self):
        args = (*self.ARGS, "--budget", self.floor)
        said = self.ok(*args, "--stats").err
        self.assertIn("% right", said)
        self.assertIn("disk: reads were under way", said)
        self.assertNotIn("% right", self.ok(*args, "--stats", "--no-lookahead").err)

    def test_statistics_are_in_the_json(self):
        model = os.path.join(os.path.dirname(WASTE), "vq3r-tok.waste")
        text = self.path("text")
        with open(text, "w") as f:
            f.write("one two three four five six seven eight nine ten")
        records = {}
        with open(os.path.join(model, "manifest.json")) as f:
            for layer, bank in json.load(f)["layers"].items():
                records[int(layer)] = bank["bytes"] // bank["experts"]
        for args in (("eval", model, *self.ARGS[2:]), ("ppl", model, text, "-c", 64)):
            args = (*args, "--budget", 2 * self.floor, "--json")
            plain = self.ok(*args).json
            self.assertNotIn("experts", plain)  # the same document whatever was read
            said = self.ok(*args, "--stats").json
            for layer in said["experts"]["layers"]:
                self.assertGreater(layer["misses"], 0)
                self.assertEqual(layer["bytes_read"], layer["reads"] * records[layer["layer"]])
                waited = layer["stall_s"] / layer["read_s"] if layer["read_s"] else 1
                self.assertAlmostEqual(layer["overlap"], max(0, 1 - waited))
            del said["experts"]
            self.assertEqual(said, plain)

    def test_the_peak_is_kept(self):
        if any(s in os.environ.get("CFLAGS", "") + tool.BUILD for s in ("san", "aarch64")):
            self.skipTest("sanitizers and emulators take memory of their own")
        for budget in (self.floor, 2 * self.floor):
            self.assertLess(peak_bytes(*self.ARGS, "--budget", budget), budget + SLACK)


if __name__ == "__main__":
    tool.main()
