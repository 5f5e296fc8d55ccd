# SPDX-License-Identifier: Apache-2.0
"""Clocks: time inside transfers, processor time of a waiting rank, and what a copy could reach."""

from __future__ import annotations

import time

import numpy as np

from pd.cache_layout import KEY, VALUE, CacheLayout
from pd.llama import Cache


class Stopwatch:
    """Adds up the seconds spent in its `with` blocks, and this process's processor time there."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu_started = time.process_time()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds += time.perf_counter() - self._started
        self.cpu_seconds += time.process_time() - self._cpu_started


def copy_seconds(layout: CacheLayout, cache: Cache, length: int, *, rounds: int = 5) -> float:
    """Return the least time in which numpy copies the same rows into memory already touched."""
    target = layout.empty()
    best = float("inf")
    for _ in range(rounds):
        watch = Stopwatch()
        with watch:
            for layer in range(layout.num_layers):
                for part in (KEY, VALUE):
                    np.copyto(target[layer, part, :length], cache[layer, part, :length])
        best = min(best, watch.seconds)
    return best
