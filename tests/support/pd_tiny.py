# SPDX-License-Identifier: Apache-2.0
"""A Llama small enough for quick tests: random weights, the same in every process, no files."""

from __future__ import annotations

import numpy as np

from pd.llama import Floats, LlamaConfig, Weights

CONFIG = LlamaConfig(
    num_layers=4,
    hidden_size=128,
    ffn_size=256,
    num_heads=8,
    kv_heads=2,
    head_dim=16,
    vocab_size=512,
    rope_theta=10000.0,
    rms_eps=1e-5,
    context_length=1024,
    eos_token=-1,  # never chosen: a generation is as long as it was asked to be
)


def tiny_weights(seed: int = 20) -> Weights:
    """Return random weights, scaled so that attention decides which token comes next."""
    rng = np.random.default_rng(seed)

    def matrix(outputs: int, inputs: int, gain: float = 1.0) -> Floats:
        values = rng.standard_normal((outputs, inputs)) * gain / np.sqrt(inputs)
        narrow: Floats = values.astype(np.float32)
        return narrow

    c = CONFIG
    kv_size = c.kv_heads * c.head_dim
    tensors = {
        "token_embd.weight": matrix(c.vocab_size, c.hidden_size),
        "output_norm.weight": np.ones(c.hidden_size, np.float32),
    }
    for layer in range(c.num_layers):
        parts = {
            "attn_norm": np.ones(c.hidden_size, np.float32),
            "attn_q": matrix(c.hidden_size, c.hidden_size, 2.0),
            "attn_k": matrix(kv_size, c.hidden_size, 2.0),
            "attn_v": matrix(kv_size, c.hidden_size, 2.0),
            "attn_output": matrix(c.hidden_size, c.hidden_size, 2.0),
            "ffn_norm": np.ones(c.hidden_size, np.float32),
            "ffn_gate": matrix(c.ffn_size, c.hidden_size),
            "ffn_up": matrix(c.ffn_size, c.hidden_size),
            "ffn_down": matrix(c.hidden_size, c.ffn_size),
        }
        tensors |= {f"blk.{layer}.{name}.weight": values for name, values in parts.items()}
    return Weights(c, tensors)


def tiny_prompt(length: int = 48) -> list[int]:
    """Return random tokens."""
    rng = np.random.default_rng(7)
    return [int(token) for token in rng.integers(0, CONFIG.vocab_size, length)]
