#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak anonymous memory (RssAnon) of `caisson convert`, against 512 MiB + the largest tensor as f32.

    bench/convert_memory.py [--caisson build/release/caisson] [--gb 1] [--quant q8_row] [--dir DIR] [SOURCE ...]

Without SOURCE it writes a random llama in safetensors of that many GB (two shards, bf16) and
converts it; a SOURCE is a GGUF file or a Hugging Face directory. Python 3 alone. One JSON line a
source: {"source":S,"source_bytes":B,"largest_tensor_f32_bytes":L,"peak_rss_anon_bytes":P,
"limit_bytes":512 MiB + L,"ok":P <= limit,"seconds":T}
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 2048, 5632, 32, 4, 32000


def tensors(n_layers):
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCAB, HIDDEN)
    kv = HIDDEN // HEADS * KV_HEADS
    for i in range(n_layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (HIDDEN,)
        yield p + "post_attention_layernorm.weight", (HIDDEN,)
        for name, rows, cols in (("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.k_proj", kv, HIDDEN),
                                 ("self_attn.v_proj", kv, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
                                 ("mlp.gate_proj", FFN, HIDDEN), ("mlp.up_proj", FFN, HIDDEN),
                                 ("mlp.down_proj", HIDDEN, FFN)):
            yield f"{p}{name}.weight", (rows, cols)


def size(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def write_model(path, gb):
    layer = sum(size(s) for n, s in tensors(1) if ".layers." in n) * 2
    head = sum(size(s) for n, s in tensors(0)) * 2
    n_layers = max(1, int((gb * 1e9 - head) / layer))
    os.makedirs(path)
    with open(f"{path}/config.json", "w") as f:
        json.dump({"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN, "vocab_size": VOCAB,
                   "num_hidden_layers": n_layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                   "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}, f)
    block = bytearray(os.urandom(1 << 20))  # bf16 near 0.01, with random signs
    block[1::2] = bytes(block[1::2]).translate(bytes(0x3C | (i & 0x80) for i in range(256)))
    every = list(tensors(n_layers))
    shards, where = [every[:len(every) // 2], every[len(every) // 2:]], {}
    for k, shard in enumerate(shards):
        name, off, header = f"model-{k + 1:05d}-of-00002.safetensors", 0, {}
        for t, shape in shard:
            header[t] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [off, off + 2 * size(shape)]}
            off += 2 * size(shape)
            where[t] = name
        text = json.dumps(header).encode()
        with open(f"{path}/{name}", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for _, shape in shard:
                left = 2 * size(shape)
                while left > 0:
                    left -= f.write(block[:left])
    with open(f"{path}/model.safetensors.index.json", "w") as f:
        json.dump({"weight_map": where}, f)


def rss_anon(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def largest_tensor(caisson, target):
    rows = json.loads(subprocess.run([caisson, "tensor", target, "--json"], capture_output=True, check=True).stdout)
    return max(4 * size(r["shape"]) for r in rows)


def source_bytes(source):
    if os.path.isfile(source):
        return os.path.getsize(source)
    return sum(os.path.getsize(f"{source}/{x}") for x in os.listdir(source))


def measure(caisson, source, quant, target):
    begin, peak = time.monotonic(), 0
    p = subprocess.Popen([caisson, "convert", source, "-o", target, "--quant", quant],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while p.poll() is None:
        peak = max(peak, rss_anon(p.pid))
        time.sleep(0.002)
    if p.returncode != 0:
        sys.exit(p.stderr.read().decode())
    largest = largest_tensor(caisson, target)
    os.remove(target)
    limit = (512 << 20) + largest
    print(json.dumps({"source": os.path.basename(source.rstrip("/")), "quant": quant, "source_bytes": source_bytes(source),
                      "largest_tensor_f32_bytes": largest, "peak_rss_anon_bytes": peak, "limit_bytes": limit,
                      "ok": peak <= limit, "seconds": round(time.monotonic() - begin, 1)}), flush=True)
    return peak <= limit


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--caisson", default="build/release/caisson")
    a.add_argument("--gb", type=float, default=1.0)
    a.add_argument("--quant", default="q8_row")
    a.add_argument("--dir")
    a.add_argument("sources", nargs="*")
    a = a.parse_args()
    work = tempfile.mkdtemp(dir=a.dir)
    ok = True
    try:
        if not a.sources:
            write_model(f"{work}/random-llama", a.gb)
            a.sources = [f"{work}/random-llama"]
        for source in a.sources:
            ok = measure(a.caisson, source, a.quant, f"{work}/out.cmf") and ok
    finally:
        shutil.rmtree(work)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
