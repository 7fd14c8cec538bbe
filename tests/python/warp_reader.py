# SPDX-License-Identifier: Apache-2.0
"""A WARP directory read with numpy and struct, written from the facts of the format alone: what the
tests hold the tool's containers against. Every rule that it knows is an assertion."""
import json
import os
import struct
import zlib

import numpy as np

KINDS = ("gate", "up", "down")


def unpack_codes(raw, fmt, rows, n):
    """Codes [rows][n] of Q8G or Q4G."""
    if fmt == 2:
        return np.frombuffer(raw, np.int8).reshape(rows, n).astype(np.float32)
    assert fmt == 3, fmt
    b = np.frombuffer(raw, np.uint8).reshape(rows, n // 2)
    q = np.empty((rows, n), np.float32)
    q[:, 0::2] = (b & 15).astype(np.float32) - 8
    q[:, 1::2] = (b >> 4).astype(np.float32) - 8
    return q


class Warp:
    def __init__(self, path):
        self.path = path
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as f:
            self.manifest = json.load(f)
        m = self.manifest
        assert list(m)[:4] == ["format_version", "arch", "tensor_prefix", "config"], list(m)
        assert m["format_version"] == 0
        self.config = m["config"]
        self.trunk = {t["name"]: t for t in m["trunk"]}
        self.trunk_bytes = self.read("trunk.bin")
        assert len(self.trunk_bytes) == max((t["off"] + t["bytes"] for t in m["trunk"]), default=0)
        c = self.config
        self.width = c["moe_intermediate_size"]
        self.hidden = c.get("routed_expert_hidden_size") or c["hidden_size"]
        self.shape = {"gate": (self.width, self.hidden), "up": (self.width, self.hidden),
                      "down": (self.hidden, self.width)}
        q = m["expert_quant"]
        self.stages, self.entries = q["stages"], q["entries"]
        self.packed = q["index_bits"] == 6
        assert q["index_block"] == 64 and q["vec_dim"] == 8
        self.per_vector = 3 if self.packed else self.stages
        self.books = self.read_books()

    def read(self, name):
        with open(os.path.join(self.path, name), "rb") as f:
            return f.read()

    def read_books(self):
        raw, size = self.read("codebooks.bin"), 16 + self.entries * 16
        assert len(raw) == size * 3 * self.stages * len(self.manifest["layers"])
        books = []
        for i in range(len(raw) // size):
            head = struct.unpack_from("<IHBBII", raw, i * size)
            assert head == (0x4B424357, i & 0xFFFF, 4, 8, self.entries, 0), head
            values = np.frombuffer(raw, "<f2", self.entries * 8, i * size + 16)
            assert np.isfinite(values).all()
            tiny = (np.abs(values) > 0) & (np.abs(values) < 2.0**-14)
            assert not tiny.any(), "a subnormal, which the format's engine takes for zero"
            books.append(values.astype(np.float32).reshape(self.entries, 8))
        return books

    def tensor(self, name):
        t = self.trunk[name]
        shape, off = t["shape"], t["off"]
        if t["fmt"] == 0:
            assert t["bytes"] == 4 * int(np.prod(shape)) and "group" not in t
            return np.frombuffer(self.trunk_bytes, "<f4", int(np.prod(shape)), off).reshape(shape)
        rows, cols = int(np.prod(shape[:-1])), shape[-1]
        groups = -(-cols // 128)
        assert t["group"] == 128 and t["off"] + t["bytes"] == t["scale_off"] + 2 * rows * groups
        codes = unpack_codes(self.trunk_bytes[off:t["scale_off"]], t["fmt"], rows, groups * 128)
        scales = np.frombuffer(self.trunk_bytes, "<f2", rows * groups, t["scale_off"])
        x = codes.reshape(rows, groups, 128) * scales.astype(np.float32).reshape(rows, groups, 1)
        return x.reshape(rows, groups * 128)[:, :cols].reshape(shape)

    def record(self, layer, expert):
        """The record, its header checked: bytes, codebook id, spans of indices, offset of scales."""
        bank = self.manifest["layers"][str(layer)]
        stride = bank["bytes"] // bank["experts"]
        assert bank["bytes"] % bank["experts"] == 0 and stride % 4096 == 0
        assert os.path.getsize(os.path.join(self.path, bank["file"])) == bank["bytes"]
        with open(os.path.join(self.path, bank["file"]), "rb") as f:
            f.seek(expert * stride)
            raw = f.read(stride)
        (magic, l, e, fmt, flags, book, lowrank, zero, pages, gate, up, down, corr, crc, r0,
         r1) = struct.unpack_from("<IHHBBHHHIIIIIIII", raw, 0)
        assert (magic, l, e, flags, lowrank, zero, r0, r1) == (0x50584557, layer, expert, 0, 0, 0, 0, 0)
        assert fmt == (8 if self.packed else 4) and book == bank["codebook_base"]
        assert pages * 4096 == stride
        sizes = [-(-r // 64) * 64 * (c // 8) * self.per_vector for r, c in self.shape.values()]
        assert (gate, up, down, corr) == (48, 48 + sizes[0], 48 + sum(sizes[:2]), 48 + sum(sizes))
        end = corr + 2 * sum(r for r, _ in self.shape.values())
        assert zlib.crc32(raw[48:end]) == crc
        assert not any(raw[end:]) and stride - end < 4096
        return raw, book, dict(zip(KINDS, (gate, up, down))), corr

    def expert(self, layer, expert, kind):
        """Weights [rows][cols] as f32."""
        raw, book, span, at = self.record(layer, expert)
        k = KINDS.index(kind)
        rows, cols = self.shape[kind]
        nv, blocks = cols // 8, -(-rows // 64)
        n = blocks * 64 * nv * self.per_vector
        idx = np.frombuffer(raw, np.uint8, n, span[kind])
        idx = idx.reshape(blocks, nv, 64, self.per_vector).transpose(0, 2, 1, 3)
        idx = idx.reshape(blocks * 64, nv, self.per_vector)
        assert not idx[rows:].any()
        idx = idx[:rows].astype(np.uint32)
        if self.packed:
            w = idx[..., 0] | idx[..., 1] << 8 | idx[..., 2] << 16
            idx = np.stack([w >> 6 * s & 63 for s in range(4)], -1)
        at += 2 * sum(self.shape[KINDS[i]][0] for i in range(k))
        scale = np.frombuffer(raw, "<f2", rows, at).astype(np.float32)
        total = np.zeros((rows, nv, 8), np.float32)
        for s in range(self.stages):
            total += self.books[book + k * self.stages + s][idx[..., s]]
        return (total * scale[:, None, None]).reshape(rows, cols)

    def check(self):
        """Everything; returns the number of experts."""
        n = 0
        for layer, bank in sorted(self.manifest["layers"].items(), key=lambda x: int(x[0])):
            assert bank["experts"] == self.config["num_experts"]
            for e in range(bank["experts"]):
                self.record(int(layer), e)
                n += 1
        for name in self.trunk:
            assert np.isfinite(self.tensor(name)).all(), name
        return n
