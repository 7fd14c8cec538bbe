# SPDX-License-Identifier: Apache-2.0
"""Reads CMF v2 model files. An independent second reader: it shares no code with libcaisson.

    from caisson_cmf import Model, verify
    model = Model("model.cmf")                    # or any shard of it
    model.header.arch["hidden_size"]
    model.values("model.norm.weight")             # numpy float32
    verify("model.cmf").problems                  # [] for a sound file
"""
from .codecs import TABLE as DTYPES
from .errors import (BadSignature, Bounds, CmfError, FileNotFound, HashMismatch, InvalidMagic, Io,
                     MissingTensor, Parse, UnsupportedFeature, UnsupportedVersion)
from .file import File
from .hash64 import hash64
from .model import Located, Model
from .verify import Result, verify

__version__ = "0.1.0"
__all__ = ["BadSignature", "Bounds", "CmfError", "DTYPES", "File", "FileNotFound", "HashMismatch",
           "InvalidMagic", "Io", "Located", "MissingTensor", "Model", "Parse", "Result",
           "UnsupportedFeature", "UnsupportedVersion", "hash64", "verify"]
