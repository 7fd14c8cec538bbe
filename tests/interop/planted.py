# SPDX-License-Identifier: Apache-2.0
"""Turns the checkpoint of a random mixture into one whose experts decide the next token.

    planted.plant(DIR, seed) -> the live tokens, each followed by what the model says next (the first by the last)

DIR is what `caisson export` made of a small `caisson synth` of a family that WARP has, f32; its weights are
replaced in place. A random model has leads of hundredths between the first and the second token, which any
rounding turns around. A trained one is sure of most tokens, because its weights agree with each other. So do
these: LIVE tokens lie on a circle, and the way from one to the next goes through one expert of every mixture.

The stream has a space of LIVE directions for the embedding and one for each mixture. What token t left in the
space before is read by the one expert that owns t (the router reads the same directions; the other experts that
it picks know nothing of t), and a neuron of that expert writes into the next space. The head reads the last
space: the token behind t on the circle. The last mixture writes RIVAL as much for another token, so the lead is
what is left of it. Everything else (the other neurons, attention, shared and dense parts, other tokens) stays
random and is heard, more quietly.
"""
import array
import json
import math
import os
import random
import struct

LIVE = 48
NORM = 16.0   # length of what a token leaves in a space, and of a normed stream of 256
NEURON = 3.0  # about what a planted neuron gets, from gate and from up
ROUTER = 4.0  # about the logit of the expert that owns the token
LOUD = 48.0   # length of what a neuron writes before the router's share is taken, more than what is lost on the way
HEAD = 14.0   # about the logit of the next token
RIVAL = 0.6   # of another token's, of that
QUIET = 0.3   # of attention, shared and dense parts, as they were
RANDOM = 0.4  # of experts and routers, as they were


class Checkpoint:
    """One file of f32 safetensors, changed in place; tensors go by the ends of their names."""

    def __init__(self, path):
        self.f = open(path, "r+b")
        n = struct.unpack("<Q", self.f.read(8))[0]
        self.header = {k: v for k, v in json.loads(self.f.read(n)).items() if k != "__metadata__"}
        self.base = 8 + n

    def names(self, end):
        return [n for n in self.header if n.endswith(end)]

    def begin_end(self, end):
        name, = self.names(end)
        t = self.header[name]
        assert t["dtype"] == "F32", name
        return t["shape"][-1], *(self.base + o for o in t["data_offsets"])

    def get(self, end):
        cols, begin, stop = self.begin_end(end)
        self.f.seek(begin)
        a = array.array("f", self.f.read(stop - begin))
        return [a[i:i + cols] for i in range(0, len(a), cols)]

    def put(self, end, rows):
        self.f.seek(self.begin_end(end)[1])
        self.f.write(b"".join(array.array("f", r).tobytes() for r in rows))

    def scale(self, end, times):
        for name in self.names(end):
            self.put(name, [[times * a for a in r] for r in self.get(name)])


def directions(rng, n, dim):
    """n vectors of length 1 at right angles."""
    out = []
    while len(out) < n:
        v = [rng.gauss(0, 1) for _ in range(dim)]
        for u in out:
            p = sum(map(float.__mul__, u, v))
            v = [a - p * b for a, b in zip(v, u)]
        length = math.sqrt(sum(a * a for a in v))
        out.append([a / length for a in v])
    return out


def plus(row, times, direction):
    return [a + times * b for a, b in zip(row, direction)]


def transposed(rows):
    return [list(r) for r in zip(*rows)]


def plant_map(c, name, pairs, times):
    """A matrix of the trunk takes the first of each pair to `times` the second."""
    rows = [[QUIET * a for a in r] for r in c.get(name)]
    for read, written in pairs:
        rows = [plus(r, times * w, read) for r, w in zip(rows, written)]
    c.put(name, rows)


def plant_router(c, name, owner, read, reach):
    rows = [[RANDOM * a for a in r] for r in c.get(name)]
    for t, e in enumerate(owner):
        rows[e] = plus(rows[e], ROUTER / reach, read[t])
    c.put(name, rows)


def plant_expert(c, names, rng, owned, read, written, reach):
    gate, up, down = ([[RANDOM * a for a in r] for r in c.get(n)] for n in names)
    down = transposed(down)
    for t, j in zip(owned, rng.sample(range(len(gate)), len(owned))):
        sign = rng.choice((-1, 1))
        gate[j] = plus(gate[j], NEURON / reach, read[t])
        up[j] = plus(up[j], sign * NEURON / reach, read[t])
        down[j] = plus(down[j], sign * LOUD / NEURON ** 2, written[t])
    for n, rows in zip(names, (gate, up, transposed(down))):
        c.put(n, rows)


def plant(directory, seed):
    rng = random.Random(seed)
    c = Checkpoint(os.path.join(directory, "model.safetensors"))
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    config = config.get("text_config", config)
    hidden, vocab, n_layers = config["hidden_size"], config["vocab_size"], config["num_hidden_layers"]
    latent = config.get("routed_expert_hidden_size")
    mixtures = range(config["first_k_dense_replace"], n_layers)
    every = directions(rng, (len(mixtures) + 1) * LIVE, hidden)
    spaces = [every[i:i + LIVE] for i in range(0, len(every), LIVE)]

    for end, times in (("o_proj.weight", QUIET), ("mlp.down_proj.weight", QUIET),
                       ("shared_experts.down_proj.weight", QUIET), ("res_proj.weight", 0.3)):
        c.scale(end, times)
    live = rng.sample(range(4, vocab - 16), LIVE)  # the synth tokenizer's specials are at the end
    table = c.get("embed_tokens.weight")
    head = [[0.1 * a for a in r] for r in c.get("lm_head.weight")]
    reach = NORM / math.sqrt(len(mixtures) + 1)  # of a space in the normed stream, after so many of them
    for t, token in enumerate(live):
        table[token] = plus(table[token], NORM, spaces[0][t])
        behind = live[(t + 1) % LIVE]
        head[behind] = plus(head[behind], HEAD / reach, spaces[-1][t])
    c.put("embed_tokens.weight", table)
    c.put("lm_head.weight", head)

    for i, layer in enumerate(mixtures):
        at = f"layers.{layer}." + ("mlp." if c.names("layers.1.mlp.gate.weight") else "block_sparse_moe.")
        words = ("gate_proj", "up_proj", "down_proj") if "mlp" in at else ("w1", "w3", "w2")
        n_experts = len(c.get(at + "gate.weight"))
        owner = [t % n_experts for t in range(LIVE)]
        rng.shuffle(owner)
        reach = NORM / math.sqrt(i + 1)
        read, written = spaces[i], spaces[i + 1]
        plant_router(c, at + "gate.weight", owner, read, reach)
        if latent:
            into, out = directions(rng, LIVE, latent), directions(rng, LIVE, latent)
            plant_map(c, at + "routed_expert_down_proj.weight", zip(read, into), 1)
            plant_map(c, at + "routed_expert_up_proj.weight", zip(out, written), NORM / math.sqrt(latent))
            read, written = into, out
        if layer == mixtures[-1]:
            rival = rng.randrange(1, LIVE)
            written = [plus(w, RIVAL, written[(t + rival) % LIVE]) for t, w in enumerate(written)]
        for e in range(n_experts):
            plant_expert(c, [f"{at}experts.{e}.{w}.weight" for w in words], rng,
                         [t for t in range(LIVE) if owner[t] == e], read, written, reach)
    c.f.close()
    return live
