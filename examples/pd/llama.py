# SPDX-License-Identifier: Apache-2.0
"""What both backends share: the shape of the model, its weights, and greedy decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

import hixl_rma as rma

Floats = NDArray[np.float32]
#: A cache of shape CacheLayout.shape: a numpy array, or a torch tensor where torch is there.
Cache: TypeAlias = Any
#: Called as `on_layer(layer, first, last)` once K and V of tokens [first, last) lie in the cache.
OnLayer = Callable[[int, int, int], None]


@dataclass(frozen=True)
class LlamaConfig:
    """The numbers that shape a Llama model."""

    num_layers: int
    hidden_size: int
    ffn_size: int
    num_heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    rope_theta: float
    rms_eps: float
    context_length: int
    eos_token: int


@dataclass(frozen=True)
class Weights:
    """A model's float32 tensors under their GGUF names, each as (outputs, inputs).

    Rows of Q and K are in GGUF's order: the two halves of a rotated pair are neighbours.
    """

    config: LlamaConfig
    tensors: Mapping[str, Floats]


class Session(Protocol):
    """One sequence being computed over one cache."""

    def feed(self, tokens: Sequence[int]) -> Floats:
        """Append tokens to the sequence and return the logits after the last one."""


class Model(Protocol):
    """A backend: the same Llama, computed by numpy or by torch."""

    config: LlamaConfig

    def cache_in(self, win: rma.Window) -> Cache:
        """Return this rank's part of a window as the backend reads and writes it."""

    def session(self, cache: Cache, *, filled: int = 0, on_layer: OnLayer | None = None) -> Session:
        """Start on a cache of shape CacheLayout.shape whose first `filled` tokens are there."""

    def reference_session(self, max_len: int) -> Session:
        """Start on an empty cache of the backend's own, for one process and without a window."""


@dataclass
class Generated:
    """Tokens, and the logits that chose each but the first where they were asked for."""

    tokens: list[int]
    logits: list[Floats]


def generate(
    session: Session,
    first_token: int,
    *,
    max_tokens: int,
    eos: int,
    show: Callable[[int], None] = lambda _token: None,
    keep_logits: bool = False,
) -> Generated:
    """Continue a sequence greedily from its first new token, until `eos` or `max_tokens`."""
    generated = Generated([first_token], [])
    show(first_token)
    while len(generated.tokens) < max_tokens and generated.tokens[-1] != eos:
        logits = session.feed(generated.tokens[-1:])
        generated.tokens.append(int(logits.argmax()))
        show(generated.tokens[-1])
        if keep_logits:
            generated.logits.append(logits)
    return generated
