# SPDX-License-Identifier: Apache-2.0
"""The masks section (specification section 5): bit fields that say what is active for a task.

    u32 n_masks, u32 meta_len, JSON meta, then one blob a mask

A blob has no header of its own; with B(n) = ceil(n / 8) it is

    FFN      visits x B(intermediate_size)       or num_layers x ... in files older than loops
    heads    num_layers x B(num_attention_heads)
    gates    B(num_layers)
    experts  num_layers x B(moe.num_experts), only with has_expert_fields

visits = num_layers x num_loops, pass by pass. Item i is bit i mod 8, lowest first, of byte i / 8.
"""
from __future__ import annotations

import struct
from typing import Dict, List, NamedTuple, Optional

import numpy as np

from .errors import Parse, Report
from .header import Header
from .schema import (Field, Mismatch, array, f32, flag, one_of, parse_json, record, text, u32,
                     u64)

QUALITY = record([Field("metric", text), Field("value", f32), Field("baseline_dense", f32, None),
                  Field("n_samples", u64, None), Field("dataset_sha256", text, None)])

META = record([
    Field("default_task", text),
    Field("masks", array(record([
        Field("task_id", u32), Field("name", text), Field("description", text, None),
        Field("sparsity", f32), Field("quality", QUALITY, None), Field("parent", text, None),
        Field("priority", one_of("Fallback", "Normal", "Primary")),
        Field("has_hot_pack", flag, False), Field("has_expert_fields", flag, False),
        Field("blob_off", u64), Field("blob_len", u64)])))])


class Mask(NamedTuple):
    """Rows of truth values, as stored. A visit beyond the stored rows is that of an earlier pass:
    use the functions, which take the visit (0 <= visit < header.visits)."""

    meta: dict  # one element of META's masks
    ffn: np.ndarray  # bool [visits or num_layers][intermediate_size]
    heads: np.ndarray  # bool [num_layers][num_attention_heads]
    gates: np.ndarray  # bool [num_layers]; False: the layer is skipped
    experts: Optional[np.ndarray]  # bool [num_layers][num_experts]; None: no restriction

    @property
    def name(self) -> str:
        return self.meta["name"]

    def ffn_of(self, visit: int) -> np.ndarray:
        return self.ffn[visit % len(self.ffn)]

    def heads_of(self, visit: int) -> np.ndarray:
        return self.heads[visit % len(self.heads)]

    def gate_of(self, visit: int) -> bool:
        return bool(self.gates[visit % len(self.gates)])

    def experts_of(self, visit: int) -> Optional[np.ndarray]:
        return None if self.experts is None else self.experts[visit % len(self.experts)]

    @property
    def is_open(self) -> bool:
        """Everything active: no different from no mask."""
        parts = (self.ffn, self.heads, self.gates, self.experts)
        return all(part is None or bool(part.all()) for part in parts)


class Catalog(NamedTuple):
    default_task: str
    masks: List[Mask]

    def named(self, name: str) -> Optional[Mask]:
        return next((mask for mask in self.masks if mask.name == name), None)

    @property
    def active(self) -> Optional[Mask]:
        """The mask that default_task names; none if no mask has that name."""
        return self.named(self.default_task)

    @property
    def fallback(self) -> Optional[Mask]:
        """The mask that the format's reference starts with."""
        first = (mask for mask in self.masks if mask.meta["priority"] == "Fallback")
        return next(first, self.masks[0] if self.masks else None)


def parse(data, offset: int, header: Header, report: Report) -> Optional[Catalog]:
    """The catalog, without the masks that were reported. offset: of the section in the file."""
    def bad(what: str, at: int, **values) -> None:
        report(Parse(what, section="masks", offset=offset + at, **values))

    if len(data) < 8:
        bad("section is too short", 0, want=8, got=len(data))
        return None
    n_masks, meta_len = struct.unpack_from("<II", data, 0)
    if 8 + meta_len > len(data):
        bad("meta ends behind the section", 4, want=len(data), got=8 + meta_len)
        return None
    try:
        meta = META(parse_json(data[8 : 8 + meta_len], "masks"), "masks")
    except Mismatch as e:
        bad(str(e), 8)
        return None
    if len(meta["masks"]) != n_masks:
        bad("number of masks differs from the meta's", 0, want=len(meta["masks"]), got=n_masks)
        return None
    found = []
    for mask in meta["masks"]:
        who = "mask '%s': " % mask["name"]
        start, end = mask["blob_off"], mask["blob_off"] + mask["blob_len"]
        if mask["has_expert_fields"] and header.arch["moe"] is None:
            bad(who + "has expert rows, but arch has no moe", 8)
        elif mask["blob_len"] not in _accepted_sizes(mask, header):
            bad(who + "blob_len is of no accepted size", 8,
                want=" or ".join(map(str, sorted(set(_accepted_sizes(mask, header))))),
                got=mask["blob_len"])
        elif end > len(data):
            bad(who + "blob ends behind the section", 8, want=len(data), got=end)
        else:
            decoded = _decode(mask, data[start:end], header)
            if isinstance(decoded, Mask):
                found.append(decoded)
            else:
                bad(who + "%s have bits beyond their dimension" % decoded, start)
    return Catalog(meta["default_task"], found)


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


def _dimensions(mask: dict, ffn_rows: int, header: Header) -> Dict[str, tuple]:
    """name of a part -> (rows, bits a row), in the blob's order"""
    arch = header.arch
    parts = {"ffn": (ffn_rows, arch["intermediate_size"]),
             "heads": (arch["num_layers"], arch["num_attention_heads"]),
             "gates": (1, arch["num_layers"])}
    if mask["has_expert_fields"]:
        parts["experts"] = (arch["num_layers"], arch["moe"]["num_experts"])
    return parts


def _accepted_sizes(mask: dict, header: Header) -> Dict[int, int]:
    """blob_len -> rows of its FFN part"""
    sizes = {}
    for ffn_rows in (header.arch["num_layers"], header.visits):
        parts = _dimensions(mask, ffn_rows, header).values()
        sizes[sum(rows * _bytes(bits) for rows, bits in parts)] = ffn_rows
    return sizes


def _decode(mask: dict, blob, header: Header):
    """A Mask, or the name of the part whose tail bits are not zero."""
    raw = np.frombuffer(blob, dtype=np.uint8)
    ffn_rows = _accepted_sizes(mask, header)[mask["blob_len"]]
    fields, at = {}, 0
    for name, (rows, bits) in _dimensions(mask, ffn_rows, header).items():
        size = rows * _bytes(bits)
        packed = raw[at : at + size].reshape(rows, _bytes(bits))
        unpacked = np.unpackbits(packed, axis=1, bitorder="little").astype(bool)
        if unpacked[:, bits:].any():
            return name
        fields[name] = unpacked[:, :bits]
        at += size
    return Mask(mask, fields["ffn"], fields["heads"], fields["gates"][0], fields.get("experts"))
