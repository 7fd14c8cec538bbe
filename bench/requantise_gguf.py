#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF with every matrix in one type of llama.cpp, from any GGUF: the peer's side of the
quality figures (bench/quality). Needs the PyPI packages gguf and numpy; gguf.quants gives the bytes
of llama.cpp's own reference quantiser.

usage: requantise_gguf.py IN.gguf OUT.gguf Q8_0|Q4_0|F32
"""
import sys

import gguf
import numpy as np


def main():
    src, dst, name = sys.argv[1:4]
    kind = gguf.GGMLQuantizationType[name]
    reader = gguf.GGUFReader(src)
    arch = reader.fields["general.architecture"].contents()
    out = gguf.GGUFWriter(dst, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kinds = field.types
        sub = kinds[1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
        out.add_key_value(field.name, field.contents(), kinds[0], sub_type=sub)
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        to = kind if x.ndim == 2 else gguf.GGMLQuantizationType.F32
        out.add_tensor(t.name, gguf.quants.quantize(x, to), raw_dtype=to)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


main()
