# SPDX-License-Identifier: Apache-2.0
"""One exception class a cause; each error says where it was seen and gives both values.

Reading code never raises on its own: it calls `report(error)`. A reader that opens a file passes
`raise_error`; a verifier passes a list's `append`, so that it sees every problem of a file.
"""
from __future__ import annotations

from typing import Callable, Optional


class CmfError(Exception):
    """Something is wrong with a file.

    what     the sentence; `want` and `got` are the two values that disagree, if there are two
    file     path of the file
    section  envelope, header, directory, data, masks, vocab, index, or signature (the file beside)
    tensor   name of the tensor, or "#i" for directory record i while the name is not known
    offset   byte offset in the file
    """

    code = "Io"

    def __init__(self, what: str, *, section: Optional[str] = None, tensor: Optional[str] = None,
                 offset: Optional[int] = None, want=None, got=None, file: Optional[str] = None):
        super().__init__(what)
        self.what, self.section, self.tensor, self.offset = what, section, tensor, offset
        self.want, self.got, self.file = want, got, file

    def __str__(self) -> str:
        where = []
        if self.file is not None:
            where.append(self.file)
        if self.section is not None:
            where.append(self.section)
        if self.tensor is not None:
            where.append("tensor '%s'" % self.tensor)
        text = ": ".join(where + [self.what])
        details = []
        if self.want is not None or self.got is not None:
            details.append("want %s, got %s" % (self.want, self.got))
        if self.offset is not None:
            details.append("offset %d" % self.offset)
        return text + (" (%s)" % "; ".join(details) if details else "")

    def as_json(self) -> dict:
        """The keys of `caisson verify --json`."""
        return {"code": self.code, "section": self.section, "tensor": self.tensor,
                "offset": self.offset, "want": text_or_none(self.want),
                "got": text_or_none(self.got), "what": self.what}


class InvalidMagic(CmfError):
    code = "InvalidMagic"


class UnsupportedVersion(CmfError):
    code = "UnsupportedVersion"


class UnsupportedFeature(CmfError):
    """A feature bit or a dtype that is reserved or not known here."""

    code = "UnsupportedFeature"


class Bounds(CmfError):
    """A range or a size that does not fit: sections, tensors, payloads."""

    code = "Bounds"


class Parse(CmfError):
    """Bytes that do not have the form that their section asks for."""

    code = "Parse"


class MissingTensor(CmfError):
    code = "MissingTensor"


class HashMismatch(CmfError):
    """Bytes that do not have their stored hash64 or digest."""

    code = "Hash"


class BadSignature(CmfError):
    """The detached signature is missing, of another file, of another key, or wrong."""

    code = "Signature"


class Io(CmfError):
    code = "Io"


class FileNotFound(Io):
    """Told apart from other Io errors by its class; its code in JSON is Io."""


Report = Callable[[CmfError], None]


def raise_error(error: CmfError) -> None:
    """The `report` of a reader that stops at the first problem."""
    raise error


def text_or_none(value) -> Optional[str]:
    return None if value is None else str(value)
