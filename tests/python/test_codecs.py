#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each dtype: the reference's values to the bit, worked examples, and what is refused; hash64."""
import json
import os

import support  # first: without numpy it skips the whole program
import numpy as np

from support import CODEC, SHAPES
from caisson_cmf import codecs, hash64
from caisson_cmf.codecs import Refused, ladder

IDS = {row.name: row.id for row in codecs.TABLE.values()}
GOLDEN = [name for name in IDS if os.path.exists(os.path.join(CODEC, name + ".safetensors"))]


def load(name):
    """Yields (case, payload, shape, decoded, hash64) of the golden files."""
    for folder in (CODEC, SHAPES):
        yield from load_file(os.path.join(folder, name + ".safetensors"))


def load_file(path):
    golden = support.SafeTensors(path)
    for case in json.loads(golden.metadata["cases"]):
        yield (case, golden[case + ".encoded"], tuple(json.loads(golden.metadata[case + ".shape"])),
               golden[case + ".decoded"], golden.metadata[case + ".hash64"])


def decodes_golden(self, name):
    n = 0
    for case, payload, shape, want, stored_hash in load(name):
        self.assertEqual("%016x" % hash64(payload), stored_hash, case)
        codecs.check(IDS[name], payload, shape)
        got = codecs.decode(IDS[name], payload, shape)
        self.assertEqual((got.shape, got.dtype), (shape, np.float32))
        self.assertTrue(support.same_bits(got, want), case)
        n += 1
    self.assertGreater(n, 5)


@support.cases([(name, name) for name in GOLDEN], decodes_golden)
class Golden(support.Case):
    def test_every_dtype_has_golden_data(self):
        self.assertEqual(set(IDS) - set(GOLDEN), {"mix8_4", "q4_col", "u8"})


def a_byte_more_or_less(self, name):
    for case, payload, shape, _, _ in load(name):
        for other in (payload[:-1], np.append(payload, np.uint8(0)), payload[:0]):
            with self.assertRaises(Refused, msg=case):
                codecs.check(IDS[name], other, shape)


@support.cases([(name, name) for name in GOLDEN], a_byte_more_or_less)
class Size(support.Case):
    def test_payload_of_another_shape(self):
        rule = {row.name: row.nbytes for row in codecs.TABLE.values()}
        self.assertEqual(rule["q4_block"]((33,)), 36)
        self.assertEqual(rule["q8_row"]((3, 7)), 27)
        self.assertEqual(rule["q8_2f"]((3, 7)), 21 + 6 + 14)
        self.assertEqual(rule["q8_2f"]((0, 7)), 0)
        self.assertEqual(rule["q4tp"]((2, 64)), 2 * (2 * 16 + 4 + 2))
        self.assertEqual(rule["q2tp"]((2, 64)), 2 * (2 * 8 + 4 + 2))
        self.assertEqual(rule["f16"](()), 2)

    def test_shapes_that_a_dtype_cannot_have(self):
        for name in ("q4tp", "q2tp", "vbit", "vbit_ro", "q1s", "q1t"):
            for shape in ((32,), (2, 33), (1, 1, 32)):
                with self.assertRaises(Refused, msg="%s %s" % (name, shape)):
                    codecs.check(IDS[name], np.zeros(4096, np.uint8), shape)
        for name, size in (("q8_row", 36), ("q8_2f", 68)):
            with self.assertRaises(Refused):
                codecs.decode(IDS[name], np.zeros(size, np.uint8), (2, 4, 4))
        self.assertEqual(codecs.TABLE[IDS["q8_2f"]].nbytes((2, 4, 4)), 68)


# Worked examples of the description: dtype, shape, payload in hex, first values.
EXAMPLES = [
    ("f16", (4,), "662e5535ff7b007c", [0.0999755859375, 0.333251953125, 65504.0, float("inf")]),
    ("bf16", (1,), "803f", [1.0]),
    ("q8_row", (2, 4), "2aab7f15" "00000000" "0c26" "0004",
     [0.9920654, -2.0077515, 2.999817, 0.4960327, 0, 0, 0, 0]),
    ("q8_row", (1, 4), "7f0204fe003c", [127, 2, 4, -2]),
    ("q4_block", (4,), "1f89" + "88" * 14 + "003c", [7, -7, 1, 0]),
    ("q4_tiled", (1, 32), "9240" "11223344546576878899aabbccdcedfe",
     [-15.996094, -15.996094, -13.7109375]),
    ("q8_2f", (2, 2), "7f7f817f" "1a1d" "1a21" "533e" "e84b",
     [1.0003544, 10.00478, -2.0007088, 20.00956]),
    ("vbit", (3, 32), "080403" "082c" "9230" "5529" "fe" + "7f" * 31 + "e7" + "77" * 15
     + "cd" "b6db6db6db6db6db6db6db", [7.9995117, 0.0]),
    ("vbit_ro", (2, 32), "0603" "2128" "5529" "00000000" "18000000" "24000000"
     + "fafbef" + "befbef" * 7 + "db6db6" * 4, [0.99996948, 0.51611328]),
    ("q1", (1, 32), "0038" "55555555", [0.5, -0.5, 0.5]),
    ("q1s", (1, 32), "0038" "abaaaaaa" "01000000" "00000000" "0044", [4.0, 0.5, -0.5, 0.5]),
    ("q1t", (1, 32), "003c" "58bf3f1558bf00" "0000000000000000", [1, -1, 0, 0, 1]),
    ("q1t", (1, 32), "003c" "6641c46641c403" "00000000" "01000000" "0000" "0044", [4.0]),
    ("q4tp", (1, 64), "9f" + "99" * 15 + "7f" + "77" * 15 + "00bc" "2228" "1f00", None),
    ("q4tp", (1, 32), "88" * 16 + "00cb" "0100" "00", [0.0]),
    ("q2tp", (1, 64), "63" * 8 + "aa" * 8 + "0000" "0100" "0100", [1.5, -1.5, 0.5, -0.5]),
]


class Examples(support.Case):
    def test_worked_examples_of_the_description(self):
        for name, shape, payload, want in EXAMPLES:
            raw = np.frombuffer(bytes.fromhex(payload), dtype=np.uint8)
            codecs.check(IDS[name], raw, shape)
            got = codecs.decode(IDS[name], raw, shape).reshape(-1)
            if want is not None:
                np.testing.assert_allclose(got[: len(want)], np.array(want, np.float32), rtol=3e-7,
                                           err_msg=name)

    def test_rung_0_of_q2tp_is_zero(self):
        raw = np.frombuffer(bytes.fromhex("e4" * 8 + "0000" "0000" "00"), dtype=np.uint8)
        self.assertFalse(codecs.decode(IDS["q2tp"], raw, (1, 32)).any())

    def test_u8_is_bytes(self):
        raw = np.arange(256, dtype=np.uint8)
        self.assertEqual(codecs.decode(IDS["u8"], raw, (256,)).tolist(), list(range(256)))
        with self.assertRaises(Refused):
            codecs.decode(IDS["u8"], raw, (255,))

    def test_reserved_dtypes_are_refused_by_name(self):
        for name in ("mix8_4", "q4_col"):
            with self.assertRaises(Refused) as caught:
                codecs.decode(IDS[name], np.zeros(4, np.uint8), (2, 2))
            self.assertIn(name, caught.exception.what)

    def test_infinite_and_nan_scales_reach_the_values(self):
        raw = np.frombuffer(bytes.fromhex("007c" + "79" * 6 + "04"), dtype=np.uint8)  # all digits 1
        got = codecs.decode(IDS["q1t"], np.append(raw, np.zeros(8, np.uint8)), (1, 32))
        self.assertTrue(np.isinf(got[0, :30]).all())
        raw = np.frombuffer(bytes.fromhex("00" * 4 + "007e"), dtype=np.uint8)
        self.assertTrue(np.isnan(codecs.decode(IDS["q8_row"], raw, (1, 4))).all())


class Exp2(support.Case):
    def test_every_half_as_the_c_library(self):
        """exp2f of glibc 2.36 for each finite half, in bit order: hash64 of the float32 results."""
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        with np.errstate(all="ignore"):
            got = ladder.exp2f(halves[np.isfinite(halves)])
            self.assertEqual("%016x" % hash64(got), EXP2_OF_HALVES)
            self.assertEqual(ladder.exp2f(np.array([np.inf, -np.inf], np.float32)).tolist(),
                             [np.inf, 0.0])
            self.assertTrue(np.isnan(ladder.exp2f(np.array([np.nan], np.float32)))[0])


EXP2_OF_HALVES = "b089c4d57a15fe68"


class Hash64(support.Case):
    def test_golden(self):
        golden = support.read_json(os.path.join(CODEC, "hash64.json"))
        self.assertEqual(len(golden), 40)
        for case in golden:
            self.assertEqual("%016x" % hash64(bytes.fromhex(case["hex"])), case["hash64"])

    def test_vectors_of_the_description(self):
        for data, want in (
                (b"", "0000000000000000"), (b"\0", "b456bcfc34c2cb2c"),
                (b"CMF\x01", "582301f9adce5408"), (b"hello world", "7a04b2fb6f5cae20"),
                (bytes(range(16)), "2b19df6caaecd551"), (b"\xff" * 17, "369cba2dda9de1ea"),
                (b"\0" * 15, "6c45141841d3019f"), (b"\0" * 16, "00ddbea04ad81625"),
                (bytes(range(256)), "9955bb876c0706bf")):
            self.assertEqual("%016x" % hash64(data), want)

    def test_blocks_and_plain_sum_agree(self):
        """A megabyte and an odd tail, against the definition word by word."""
        data = np.random.default_rng(7).bytes((1 << 20) + 13)
        acc = 0
        for i in range(0, len(data), 8):
            word = int.from_bytes(data[i : i + 8], "little")
            acc ^= mix(word) ^ (i // 8 * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        self.assertEqual(hash64(data), mix(acc ^ len(data)))


def mix(x):
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> 33) * factor & (1 << 64) - 1
    return x ^ x >> 33


support.main()
