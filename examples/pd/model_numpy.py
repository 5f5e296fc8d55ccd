# SPDX-License-Identifier: Apache-2.0
"""Llama in numpy: every layer's keys and values are written straight into the cache it is given.

Shapes in the comments: n new tokens, t tokens in all, H heads, G kv heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import hixl_rma as rma
from pd.cache_layout import KEY, VALUE, CacheLayout
from pd.llama import Cache, Floats, OnLayer, Weights


class NumpyLlama:
    """The numpy backend."""

    def __init__(self, weights: Weights) -> None:
        self.config = weights.config
        self.tensors = weights.tensors
        pairs = np.arange(0, self.config.head_dim, 2)
        self.rope_frequency = self.config.rope_theta ** (-pairs / self.config.head_dim)

    def cache_in(self, win: rma.Window) -> Floats:
        """Return this rank's part of a window as an array."""
        local: Floats = win.local
        return local

    def session(
        self, cache: Cache, *, filled: int = 0, on_layer: OnLayer | None = None
    ) -> NumpySession:
        """Start on a cache whose first `filled` tokens are there."""
        return NumpySession(self, cache, filled, on_layer)

    def reference_session(self, max_len: int) -> NumpySession:
        """Start on an empty cache in this process's own memory."""
        return self.session(CacheLayout.of(self.config, max_len).empty())


class NumpySession:
    """One sequence over one cache of shape CacheLayout.shape."""

    def __init__(
        self, model: NumpyLlama, cache: Floats, filled: int, on_layer: OnLayer | None
    ) -> None:
        self._model, self._config = model, model.config
        self._cache, self._length, self._on_layer = cache, filled, on_layer

    def feed(self, tokens: Sequence[int]) -> Floats:
        """Append tokens to the sequence and return the logits after the last one."""
        first, last = self._length, self._length + len(tokens)
        rotation = self._rotation(first, last)
        x = self._tensor("token_embd")[np.asarray(tokens)]
        for layer in range(self._config.num_layers):
            h = self._norm(x, f"blk.{layer}.attn_norm")
            queries = self._project(layer, h, first, last, rotation)
            if self._on_layer is not None:
                self._on_layer(layer, first, last)
            heads = self._attend(layer, queries, first, last)
            x = x + heads @ self._tensor(f"blk.{layer}.attn_output").T
            x = x + self._feed_forward(layer, x)
        self._length = last
        # SmolLM2 has one matrix for its first and its last step; other models bring "output".
        name = "output" if "output.weight" in self._model.tensors else "token_embd"
        logits: Floats = self._norm(x[-1], "output_norm") @ self._tensor(name).T
        return logits

    def _tensor(self, name: str) -> Floats:
        return self._model.tensors[f"{name}.weight"]

    def _norm(self, x: Floats, name: str) -> Floats:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        scaled: Floats = x / np.sqrt(mean_square + np.float32(self._config.rms_eps))
        return scaled * self._tensor(name)

    def _rotation(self, first: int, last: int) -> tuple[Floats, Floats]:
        """Return cosine and sine of each position's angles, shape (n, 1, D/2)."""
        angles = np.outer(np.arange(first, last), self._model.rope_frequency)[:, None, :]
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def _project(
        self, layer: int, h: Floats, first: int, last: int, rotation: tuple[Floats, Floats]
    ) -> Floats:
        """Store the new keys and values, and return the queries (n, H, D)."""
        head_dim = self._config.head_dim
        queries = (h @ self._tensor(f"blk.{layer}.attn_q").T).reshape(len(h), -1, head_dim)
        keys = (h @ self._tensor(f"blk.{layer}.attn_k").T).reshape(len(h), -1, head_dim)
        values = (h @ self._tensor(f"blk.{layer}.attn_v").T).reshape(len(h), -1, head_dim)
        self._cache[layer, KEY, first:last] = rotate(keys, rotation)
        self._cache[layer, VALUE, first:last] = values
        return rotate(queries, rotation)

    def _attend(self, layer: int, queries: Floats, first: int, last: int) -> Floats:
        """Return what each head reads from the cache, shape (n, H * D)."""
        c, n = self._config, last - first
        keys = self._cache[layer, KEY, :last].transpose(1, 2, 0)  # (G, D, t)
        values = self._cache[layer, VALUE, :last].transpose(1, 0, 2)  # (G, t, D)
        # The H / G query heads that share a kv head become further rows of one matrix.
        grouped = queries.reshape(n, c.kv_heads, -1, c.head_dim).transpose(1, 2, 0, 3)
        rows = grouped.reshape(c.kv_heads, -1, c.head_dim)  # (G, H/G * n, D)
        scores = (rows @ keys) * np.float32(c.head_dim**-0.5)
        if n > 1:
            seen = np.arange(last) <= np.arange(first, last)[:, None]  # (n, t)
            by_token = scores.reshape(c.kv_heads, -1, n, last)
            scores = np.where(seen, by_token, np.float32(-np.inf)).reshape(scores.shape)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        heads = (scores @ values).reshape(c.kv_heads, -1, n, c.head_dim)
        by_row: Floats = heads.transpose(2, 0, 1, 3).reshape(n, -1)
        return by_row

    def _feed_forward(self, layer: int, x: Floats) -> Floats:
        h = self._norm(x, f"blk.{layer}.ffn_norm")
        gate = h @ self._tensor(f"blk.{layer}.ffn_gate").T
        # exp(-gate) may overflow to infinity, of which SiLU is rightly zero.
        with np.errstate(over="ignore"):
            gate = gate / (1 + np.exp(-gate))
        up = h @ self._tensor(f"blk.{layer}.ffn_up").T
        down: Floats = (gate * up) @ self._tensor(f"blk.{layer}.ffn_down").T
        return down


def rotate(x: Floats, rotation: tuple[Floats, Floats]) -> Floats:
    """Apply RoPE to (n, heads, D), where neighbours (2i, 2i + 1) make a pair."""
    cosine, sine = rotation
    even, odd = x[..., 0::2], x[..., 1::2]
    rotated = np.empty_like(x)
    rotated[..., 0::2] = even * cosine - odd * sine
    rotated[..., 1::2] = odd * cosine + even * sine
    return rotated
