# SPDX-License-Identifier: Apache-2.0
"""Where each key and value lies in the window of the decode rank."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from pd.llama import Cache, Floats, LlamaConfig

KEY, VALUE = 0, 1


@dataclass(frozen=True)
class CacheLayout:
    """A cache of shape (num_layers, 2, max_len, kv_heads, head_dim) in float32, C order.

    Tokens come before heads, so that any run of tokens of one layer's keys, or of its values,
    is one contiguous run of bytes: what a prefill computes at once is moved by one put.
    """

    num_layers: int
    max_len: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: LlamaConfig, max_len: int) -> CacheLayout:
        """Return the layout for a model and a longest sequence."""
        return cls(config.num_layers, max_len, config.kv_heads, config.head_dim)

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """The shape of the whole cache."""
        return (self.num_layers, 2, self.max_len, self.kv_heads, self.head_dim)

    def displacement(self, layer: int, part: int, token: int) -> int:
        """Return where a token's key or value begins, in elements, the window's unit."""
        return ((layer * 2 + part) * self.max_len + token) * self.kv_heads * self.head_dim

    def nbytes(self, length: int) -> int:
        """Return the bytes that the cache of `length` tokens takes."""
        return self.num_layers * 2 * length * self.kv_heads * self.head_dim * 4

    def empty(self) -> Floats:
        """Return a cache in this process's own memory, its pages touched."""
        cache = np.empty(self.shape, np.float32)
        cache.fill(0)
        return cache


def hash_layers(cache: Cache, length: int) -> list[str]:
    """Return a hash per layer over the bytes of its first `length` keys and values."""
    hashes = []
    for layer in np.asarray(cache):
        digest = hashlib.blake2b(digest_size=16)
        for part in (KEY, VALUE):
            digest.update(np.ascontiguousarray(layer[part, :length]).view(np.uint8).data)
        hashes.append(digest.hexdigest())
    return hashes
