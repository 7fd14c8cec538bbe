# SPDX-License-Identifier: Apache-2.0
"""Detached signatures (specification section 8.2): `MODEL.sig` beside the model.

JSON with alg "ed25519-sha256", pubkey (64 hex digits), sha256 of the whole model file (64) and sig
(128). The Ed25519 message is the 32 raw bytes of the SHA-256. The hash is checked with the standard
library alone; the signature needs the module `cryptography`.
"""
from __future__ import annotations

import hashlib
import os
import re
from typing import Optional

from .errors import BadSignature, Report
from .schema import Field, Mismatch, parse_json, record, text

ALGORITHM = "ed25519-sha256"
FORM = record([Field("alg", text), Field("pubkey", text), Field("sha256", text),
               Field("sig", text)])
MAX_BYTES = 4096
HEX_DIGITS = {"pubkey": 64, "sha256": 64, "sig": 128}


def path_for(model_path: str) -> str:
    return model_path + ".sig"


def check(model_path: str, data, report: Report, key: Optional[str] = None) -> Optional[str]:
    """A note for the reader about the signature beside the model, or None where there is none.

    data  the model file's bytes
    key   public key (64 hex digits) that must have signed; without it any key is accepted
    """
    path = path_for(model_path)
    if not os.path.exists(path):
        if key is not None:
            report(BadSignature("there is no signature, but a key is asked for", file=path))
        return None
    signature = _read(path, report)
    if signature is None:
        return None
    actual = hashlib.sha256(data).hexdigest()
    if signature["sha256"].lower() != actual:
        report(BadSignature("signature is of another file", file=path, want=actual,
                            got=signature["sha256"]))
        return None
    if key is not None and signature["pubkey"].lower() != key.lower():
        report(BadSignature("signed with another key", file=path, want=key,
                            got=signature["pubkey"]))
        return None
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return "signature not checked: the Python module `cryptography` is not there"
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["pubkey"]))
        public.verify(bytes.fromhex(signature["sig"]), bytes.fromhex(actual))
    except (InvalidSignature, ValueError):
        report(BadSignature("signature is wrong", file=path, got=signature["pubkey"]))
        return None
    return "signed by %s" % signature["pubkey"].lower()


def _read(path: str, report: Report) -> Optional[dict]:
    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_BYTES + 1)
    except OSError as e:
        report(BadSignature("signature cannot be read: %s" % e.strerror, file=path))
        return None
    if len(raw) > MAX_BYTES:
        report(BadSignature("signature file is too long", file=path, want="<= %d" % MAX_BYTES))
        return None
    try:
        signature = FORM(parse_json(raw, "signature"), "signature")
    except Mismatch as e:
        report(BadSignature(str(e), file=path))
        return None
    if signature["alg"] != ALGORITHM:
        report(BadSignature("algorithm is not supported", file=path, want=ALGORITHM,
                            got=signature["alg"]))
        return None
    for key, digits in HEX_DIGITS.items():
        if not re.fullmatch("[0-9a-fA-F]{%d}" % digits, signature[key]):
            report(BadSignature("%s is not %d hexadecimal digits" % (key, digits), file=path,
                                want=digits, got=len(signature[key])))
            return None
    return signature
