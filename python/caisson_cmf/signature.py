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

from .errors import BadSignature, Io, Parse, Report, UnsupportedFeature
from .schema import Field, Mismatch, parse_json, record, text

ALGORITHM = "ed25519-sha256"
FORM = record([Field("alg", text), Field("pubkey", text), Field("sha256", text),
               Field("sig", text)])
MAX_BYTES = 64 << 10
HEX_DIGITS = {"pubkey": 64, "sha256": 64, "sig": 128}


def path_for(model_path: str) -> str:
    return model_path + ".sig"


def check(model_path: str, data, report: Report, key: Optional[str] = None) -> Optional[str]:
    """A note for the reader about the signature beside the model, or None where there is none.

    data  the model file's bytes
    key   public key (64 hex digits) that must have signed; without it any key is accepted
    """
    path = path_for(model_path)

    def bad(what: str, **values) -> None:
        report(BadSignature(what, file=path, section="signature", **values))

    if not os.path.exists(path):
        if key is not None:
            bad("there is no signature, but a key is asked for")
        return None
    signature = _read(path, report)
    if signature is None:
        return None
    actual = hashlib.sha256(data).hexdigest()
    if signature["sha256"].lower() != actual:
        return bad("signature is of another file", want=actual, got=signature["sha256"])
    if key is not None and signature["pubkey"].lower() != key.lower():
        return bad("signed with another key", want=key, got=signature["pubkey"])
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return "signature not checked: the Python module `cryptography` is not there"
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["pubkey"]))
        public.verify(bytes.fromhex(signature["sig"]), bytes.fromhex(actual))
    except (InvalidSignature, ValueError):
        return bad("signature was not made with its key", got=signature["pubkey"])
    return "signed by %s" % signature["pubkey"].lower()


def _read(path: str, report: Report) -> Optional[dict]:
    def malformed(what: str, **values) -> None:
        report(Parse(what, file=path, section="signature", **values))

    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_BYTES + 1)
    except OSError as e:
        report(Io(e.strerror or str(e), file=path, section="signature"))
        return None
    if len(raw) > MAX_BYTES:
        return malformed("file is too long", want="<= %d" % MAX_BYTES, got="more")
    try:
        signature = FORM(parse_json(raw, "signature"), "signature")
    except Mismatch as e:
        return malformed(str(e))
    if signature["alg"] != ALGORITHM:
        report(UnsupportedFeature("algorithm is not supported", file=path, section="signature",
                                  want=ALGORITHM, got=signature["alg"]))
        return None
    for key, digits in HEX_DIGITS.items():
        if not re.fullmatch("[0-9a-fA-F]{%d}" % digits, signature[key]):
            return malformed("%s is not %d hexadecimal digits" % (key, digits), want=digits,
                             got=len(signature[key]))
    return signature
