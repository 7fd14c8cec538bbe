# SPDX-License-Identifier: Apache-2.0
"""Skills (specification section 9): replacement tensors by name, and the registry in the header.

The tensor `skill.{id}.{name}` stands in for `name` while skill `id` is active. Nothing is
assembled: a lookup gives one entry or the other.
"""
from __future__ import annotations

import base64
import binascii
from typing import Dict, Iterable, List, NamedTuple, Optional

import numpy as np

from .errors import Parse
from .header import Header

PREFIX = "skill."


class Skill(NamedTuple):
    id: str
    record: Optional[dict]  # of header.skills; None: known by its tensors alone
    replaces: Dict[str, str]  # name in the backbone -> name in the directory


class Descriptor(NamedTuple):
    """What routing compares a prompt's mean hidden state (after layer phi_layer) with."""

    metric: str  # "mse", or "mse_unit": the state is brought to length 1 first
    phi_layer: int
    mean: np.ndarray  # f32 [hidden]
    basis: np.ndarray  # f32 [rank][hidden], rows orthonormal
    err_mean: Optional[float]
    err_std: Optional[float]
    holdout: np.ndarray  # f32 [holdout_n][hidden]


def registry(header: Header, names: Iterable[str]) -> Dict[str, Skill]:
    """Skills of a file: those of the header in its order, then those that only have tensors.

    Tensors of an id in `caisson.removed_skills` that has no record any more are nobody's."""
    records = {record["id"]: record for record in header["skills"]}
    skills = {id_: Skill(id_, record, {}) for id_, record in records.items()}
    removed = set(header.raw.get("caisson.removed_skills", [])) - set(records)
    by_length = sorted(removed.union(records), key=len, reverse=True)
    for name in names:
        if not name.startswith(PREFIX):
            continue
        rest = name[len(PREFIX) :]
        id_ = next((i for i in by_length if rest.startswith(i + ".")), rest.partition(".")[0])
        replaced = rest[len(id_) + 1 :]
        if replaced and id_ not in removed:
            skills.setdefault(id_, Skill(id_, None, {})).replaces[replaced] = name
    return skills


def descriptor(skill: Skill, header: Header) -> Optional[Descriptor]:
    """The routing descriptor; None if the skill has none. Parse if it cannot be used: the rest of
    the file is not touched by that, a router leaves such a skill out."""
    selection = skill.record and skill.record["selection"]
    if not selection:
        return None
    hidden = header.arch["hidden_size"]

    def halves(key: str, rows: Optional[int]) -> np.ndarray:
        """rows None: as many as there are"""
        try:
            raw = base64.b64decode(selection[key], validate=True)
        except (binascii.Error, ValueError) as e:
            raise bad("%s is not base64: %s" % (key, e)) from None
        if rows is None:
            rows = len(raw) // (2 * hidden) if hidden else 0
        if len(raw) != 2 * rows * hidden:
            raise bad("%s has the wrong length" % key, 2 * rows * hidden, len(raw))
        values = np.frombuffer(raw, dtype="<f2").astype(np.float32).reshape(rows, hidden)
        if not np.isfinite(values).all():
            raise bad("%s holds a value that is not finite" % key)
        return values

    def bad(what: str, want=None, got=None) -> Parse:
        return Parse("skill '%s': selection.%s" % (skill.id, what), section="header", want=want,
                     got=got)

    if selection["phi_layer"] >= header.arch["num_layers"]:
        raise bad("phi_layer is not a layer", "< %d" % header.arch["num_layers"],
                  selection["phi_layer"])
    mean = halves("mean", 1)[0]  # first: it has hidden_size values, so the size is no absurd one
    holdout = np.zeros((0, hidden), dtype=np.float32)
    if selection["holdout"] is not None:
        holdout = halves("holdout", selection["holdout_n"])
    return Descriptor(selection["metric"], selection["phi_layer"], mean,
                      halves("basis", selection["rank"]), selection["err_mean"],
                      selection["err_std"], holdout)


def standalone(header: Header) -> List[dict]:
    """Records that bind a file to a base (specification 9.1): then the file is no model."""
    return [record for record in header["skills"] if record["base_dir_hash"] is not None]
