#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak anonymous memory (RssAnon) of `caisson convert`, against what docs/converting.md says it may take.

    bench/convert_memory.py [--caisson build/release/caisson] [--gb 1] [--quant q8_row] [--dir DIR] [SOURCE ...]
    bench/convert_memory.py --waste [--quant vq3r] ...

A SOURCE is a GGUF file or a Hugging Face directory. Without SOURCE a random model of that many GB is written
(bf16) and converted: a llama in safetensors (two shards), and with --waste a mixture as GGUF (deepseek2). Python 3
alone. One JSON line a source: {"source":S,"quant":Q,"source_bytes":B,"peak_rss_anon_bytes":P,"limit_bytes":L,
"ok":P <= L,"seconds":T}. L is 512 MiB + the largest tensor as f32; of a .waste 96 MiB + one matrix of an expert as f32.
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
# Of the mixture.
EXPERTS, WIDTH, NOPE, ROPE, V_DIM, LORA = 64, 1408, 128, 64, 128, 512
MIB = 1 << 20


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


def write_bf16(f, nbytes):
    """Values near 0.01, with random signs; the same MiB over and over."""
    global block
    if block is None:
        block = bytearray(os.urandom(MIB))
        block[1::2] = bytes(block[1::2]).translate(bytes(0x3C | (i & 0x80) for i in range(256)))
    while nbytes > 0:
        nbytes -= f.write(block[:nbytes])


block = None


def mixture_tensors(n_layers):
    """Name, dims as GGUF has them (columns first), whether it is bf16."""
    yield "token_embd.weight", (HIDDEN, VOCAB), True
    yield "output.weight", (HIDDEN, VOCAB), True
    yield "output_norm.weight", (HIDDEN,), False
    for i in range(n_layers):
        p = f"blk.{i}."
        for name, n in (("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_kv_a_norm", LORA)):
            yield f"{p}{name}.weight", (n,), False
        for name, *dims in (("attn_q", HIDDEN, HEADS * (NOPE + ROPE)), ("attn_kv_a_mqa", HIDDEN, LORA + ROPE),
                            ("attn_k_b", NOPE, LORA, HEADS), ("attn_v_b", LORA, V_DIM, HEADS),
                            ("attn_output", HEADS * V_DIM, HIDDEN)):
            yield f"{p}{name}.weight", tuple(dims), True
        kind, width, more = ("", FFN, ()) if i == 0 else ("_exps", WIDTH, (EXPERTS,))
        for name, dims in (("gate", (HIDDEN, width)), ("up", (HIDDEN, width)), ("down", (width, HIDDEN))):
            yield f"{p}ffn_{name}{kind}.weight", dims + more, True
            if i > 0:
                yield f"{p}ffn_{name}_shexp.weight", dims, True
        if i > 0:
            yield p + "ffn_gate_inp.weight", (HIDDEN, EXPERTS), False
            yield p + "exp_probs_b.bias", (EXPERTS,), False


def write_mixture(path, gb):
    per_layer = 2 * 3 * HIDDEN * WIDTH * EXPERTS
    n_layers = 1 + max(1, round(gb * 1e9 / per_layer))
    keys = {"general.architecture": "deepseek2", "general.name": "random", "tokenizer.ggml.model": "none"}
    for key, value in {
            "block_count": n_layers, "context_length": 4096, "embedding_length": HIDDEN, "feed_forward_length": FFN,
            "attention.head_count": HEADS, "attention.head_count_kv": 1, "rope.freq_base": 10000.0,
            "attention.layer_norm_rms_epsilon": 1e-6, "expert_count": EXPERTS, "expert_used_count": 6,
            "expert_gating_func": 2, "attention.key_length": LORA + ROPE, "attention.value_length": LORA,
            "leading_dense_block_count": 1, "vocab_size": VOCAB, "attention.kv_lora_rank": LORA,
            "attention.key_length_mla": NOPE + ROPE, "attention.value_length_mla": V_DIM,
            "expert_feed_forward_length": WIDTH, "expert_shared_count": 1, "expert_weights_scale": 2.5,
            "expert_weights_norm": True, "rope.dimension_count": ROPE}.items():
        keys["deepseek2." + key] = value

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    every = list(mixture_tensors(n_layers))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(every), len(keys))
    for key, value in keys.items():
        kind, body = ((7, struct.pack("<?", value)) if isinstance(value, bool) else
                      (4, struct.pack("<I", value)) if isinstance(value, int) else
                      (6, struct.pack("<f", value)) if isinstance(value, float) else (8, text(value)))
        head += text(key) + struct.pack("<I", kind) + body
    at = 0
    for name, dims, is_bf16 in every:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 30 if is_bf16 else 0, at)
        at += -(-size(dims) * (2 if is_bf16 else 4) // 32) * 32
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for _, dims, is_bf16 in every:
            if is_bf16:
                write_bf16(f, 2 * size(dims))
            else:
                f.write(struct.pack("<f", 0.5) * size(dims))
            f.write(bytes(-f.tell() % 32))


def write_model(path, gb):
    layer = sum(size(s) for n, s in tensors(1) if ".layers." in n) * 2
    head = sum(size(s) for n, s in tensors(0)) * 2
    n_layers = max(1, int((gb * 1e9 - head) / layer))
    os.makedirs(path)
    with open(f"{path}/config.json", "w") as f:
        json.dump({"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": FFN, "vocab_size": VOCAB,
                   "num_hidden_layers": n_layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                   "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}, f)
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
                write_bf16(f, 2 * size(shape))
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


def expert_matrix(target):
    with open(f"{target}/manifest.json") as f:
        c = json.load(f)["config"]
    return 4 * c["moe_intermediate_size"] * (c.get("routed_expert_hidden_size") or c["hidden_size"])


def source_bytes(source):
    if os.path.isfile(source):
        return os.path.getsize(source)
    return sum(os.path.getsize(f"{source}/{x}") for x in os.listdir(source))


def measure(o, source, target):
    begin, peak = time.monotonic(), 0
    kind = "--expert-quant" if o.waste else "--quant"
    p = subprocess.Popen([o.caisson, "convert", source, "-o", target, kind, o.quant],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while p.poll() is None:
        peak = max(peak, rss_anon(p.pid))
        time.sleep(0.002)
    if p.returncode != 0:
        sys.exit(p.stderr.read().decode())
    limit = 96 * MIB + expert_matrix(target) if o.waste else 512 * MIB + largest_tensor(o.caisson, target)
    shutil.rmtree(target) if o.waste else os.remove(target)
    print(json.dumps({"source": os.path.basename(source.rstrip("/")), "quant": o.quant,
                      "source_bytes": source_bytes(source), "peak_rss_anon_bytes": peak, "limit_bytes": limit,
                      "ok": peak <= limit, "seconds": round(time.monotonic() - begin, 1)}), flush=True)
    return peak <= limit


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--caisson", default="build/release/caisson")
    a.add_argument("--gb", type=float, default=1.0)
    a.add_argument("--waste", action="store_true")
    a.add_argument("--quant")
    a.add_argument("--dir")
    a.add_argument("sources", nargs="*")
    a = a.parse_args()
    a.quant = a.quant or ("vq3r" if a.waste else "q8_row")
    work = tempfile.mkdtemp(dir=a.dir)
    ok = True
    try:
        if not a.sources:
            a.sources = [f"{work}/random-mixture.gguf" if a.waste else f"{work}/random-llama"]
            (write_mixture if a.waste else write_model)(a.sources[0], a.gb)
        for source in a.sources:
            ok = measure(a, source, f"{work}/out.{'waste' if a.waste else 'cmf'}") and ok
    finally:
        shutil.rmtree(work)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
