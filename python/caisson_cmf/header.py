# SPDX-License-Identifier: Apache-2.0
"""The JSON header (specification section 2): which keys there are and what they may hold."""
from __future__ import annotations

from typing import Optional

from .errors import Parse, Report
from .schema import (Field, Fields, Mismatch, anything, array, f32, f64, flag, one_of, parse_json,
                     record, text, u32, u64)

MAX_LAYER_VISITS = 1 << 20  # num_layers x num_loops: bounds what a mask may ask us to build

QUANT_TYPES = ("Q8_ROW", "Q4_BLOCK", "Q8_2F", "VBIT", "BF16", "F16", "F32")
LAYER_TYPES = ("FullAttention", "LinearAttention", "SlidingAttention", "ShortConv", "Kda")

YARN = record([
    Field("factor", f32), Field("original_max_position_embeddings", u64),
    Field("beta_fast", f32, 32.0), Field("beta_slow", f32, 1.0),
    Field("attention_factor", f32, 1.0), Field("mscale_all_dim", f32, None)])

MLA = record([
    Field("kv_lora_rank", u64), Field("qk_rope_head_dim", u64), Field("qk_nope_head_dim", u64),
    Field("v_head_dim", u64), Field("q_lora_rank", u64, None), Field("nope", flag, False)])

MTP = record([Field("num_layers", u64), Field("share_lm_head", flag, True),
              Field("share_embed", flag, True)])

MOE = record([
    Field("num_experts", u64), Field("top_k", u64), Field("moe_intermediate_size", u64),
    Field("norm_topk_prob", flag, False), Field("shared_expert_intermediate_size", u64, None),
    Field("router_sigmoid", flag, False), Field("routed_scaling_factor", f32, None),
    Field("router_resonance", flag, False)])

LINEAR_CORE = record([Field("kind", text), Field("num_heads", u64), Field("nphase", u64, None),
                      Field("value_head_dim", u64, None)])

G3N = record([
    Field("altup_num_inputs", u64), Field("laurel_rank", u64), Field("ple_dim", u64),
    Field("ple_vocab", u64), Field("num_kv_shared_layers", u64),
    Field("activation_sparsity", array(f64), [])])

ARCH = record([
    Field("arch_name", text), Field("hidden_size", u64), Field("intermediate_size", u64),
    Field("num_layers", u64), Field("num_attention_heads", u64), Field("num_kv_heads", u64),
    Field("head_dim", u64), Field("vocab_size", u64),
    Field("layer_types", array(one_of(*LAYER_TYPES))),
    Field("rms_norm_eps", f64), Field("norm_style", one_of("qwen", "gemma"), "qwen"),
    Field("rope_theta", f64, 10000.0), Field("tie_word_embeddings", flag, False),
    Field("partial_rotary_factor", f32, 1.0), Field("yarn", YARN, None),
    Field("attention_heads_per_layer", array(u64), None), Field("hidden_act", text, "silu"),
    Field("embed_multiplier", f32, 1.0), Field("query_pre_attn_scalar", f64, None),
    Field("sliding_window", u64, None), Field("sliding_window_pattern", u64, None),
    Field("rope_local_base_freq", f64, None), Field("local_partial_rotary_factor", f32, None),
    Field("global_head_dim", u64, None), Field("num_global_kv_heads", u64, None),
    Field("global_partial_rotary_factor", f32, None), Field("final_logit_softcapping", f64, None),
    Field("mla", MLA, None), Field("activation_situ_beta", f64, None),
    Field("activation_situ_linear_beta", f64, None), Field("attn_logit_softcapping", f64, None),
    Field("attn_v_norm", flag, False), Field("mtp", MTP, None), Field("moe", MOE, None),
    Field("linear_core", LINEAR_CORE, None), Field("head_clusters", u64, None),
    Field("max_position_embeddings", u64), Field("linear_conv_kernel_dim", u64, None),
    Field("linear_num_key_heads", u64, None), Field("linear_num_value_heads", u64, None),
    Field("linear_key_head_dim", u64, None), Field("linear_value_head_dim", u64, None),
    Field("rope_freq_factors", array(f64), None), Field("logit_multiplier", f32, None),
    Field("g3n", G3N, None), Field("kda_gate_lower_bound", f64, None),
    Field("num_loops", u64, 1), Field("loop_final_norm", flag, False)])

TOKENIZER_CONFIG = record([
    Field("chat_template", text, None), Field("eos_token_ids", array(u32), []),
    Field("bos_token_id", u32, None), Field("pad_token_id", u32, None)])

SECTION_HASHES = record([Field("masks", text, None), Field("vocab", text, None),
                         Field("index", text, None)])

# `rank` may be missing: it follows from the length of `basis` (skills.py).
SELECTION = record([
    Field("metric", text), Field("phi_layer", u64), Field("mean", text), Field("basis", text),
    Field("rank", u64, None), Field("err_mean", f32, None), Field("err_std", f32, None),
    Field("holdout", text, None), Field("holdout_n", u64, None)])

SKILL = record([
    Field("id", text), Field("name", text, None), Field("layers", array(u64), []),
    Field("selection", SELECTION, None), Field("input_mask_task", text, None),
    Field("quality", anything, None), Field("base_dir_hash", text, None),
    Field("base_arch", text, None), Field("task", text, None), Field("provenance", anything, None)])

CALIBRATION = record([Field("temperature", f32), Field("ece_before", f32, None),
                      Field("ece_after", f32, None)])

ROUTING = record([Field("temperature", f32), Field("novelty_theta", f32), Field("samples", u64),
                  Field("target_fpr", f32)])

HEADER = record([
    Field("format", text, "cmf"), Field("version", u32), Field("arch", ARCH),
    Field("quant_type", one_of(*QUANT_TYPES)), Field("provenance", anything, None),
    Field("tokenizer_config", TOKENIZER_CONFIG, None),
    Field("section_hashes", SECTION_HASHES, None), Field("skills", array(SKILL), []),
    Field("shard", record([Field("no", u32), Field("count", u32)]), None),
    Field("calibration", CALIBRATION, None), Field("routing", ROUTING, None)])


class Header(dict):
    """Known keys, checked, with defaults filled in. `raw` is the JSON object as it was, with the
    keys that this reader does not know (`caisson.*` among them)."""

    raw: Fields

    @property
    def arch(self) -> dict:
        return self["arch"]

    @property
    def visits(self) -> int:
        """Layers that a token passes: visit v uses the weights of layer v mod num_layers."""
        return self.arch["num_layers"] * self.arch["num_loops"]


def parse(data: bytes, offset: int, report: Report) -> Optional[Header]:
    """The header, or None after a report. offset: of `data` in the file."""
    try:
        raw = parse_json(data, "header")
        header = Header(HEADER(raw, "header"))
        header.raw = raw
        if header.visits > MAX_LAYER_VISITS:
            raise Mismatch("header.arch: num_layers x num_loops is %d, more than %d"
                           % (header.visits, MAX_LAYER_VISITS))
    except Mismatch as e:
        report(Parse(str(e), section="header", offset=offset))
        return None
    return header
