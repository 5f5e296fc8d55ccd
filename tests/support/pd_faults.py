# SPDX-License-Identifier: Apache-2.0
"""Hand a cache over with the demonstration's own code, once intact and once with each fault.

    export PYTHONPATH=examples:tests
    mpirun -n 2 python tests/support/pd_faults.py --model tiny --backend numpy --json FILE

The faults are made between the example and its window, on the way to it: neither the example nor
the library knows of them. Rank 0 writes for each fault which oracle noticed it.
"""

from __future__ import annotations

import pd.one_thread  # noqa: F401  (before numpy, which reads it when it is imported)

# isort: split

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import hixl_rma as rma
import pd_generate
from pd import weights
from pd.cache_layout import KEY, CacheLayout, hash_layers
from pd.check import same_bits, single_process
from pd.llama import Floats, Generated, Model, Weights
from pd.mailbox import Mailbox
from pd.report import DecodeReport
from pd_generate import DECODE, PREFILL, REPORT
from support.pd_tiny import tiny_prompt, tiny_weights

READY = 4
BLOCK = 16
SECONDS = 60.0
MAX_TOKENS = 12
#: Rows of one layer's keys or values on their way: what is to be sent instead, None for nothing.
Fault = Callable[[int, int, Floats], "Floats | None"]


def none(_layer: int, _part: int, rows: Floats) -> Floats:
    """Send what was computed."""
    return rows


def flipped_bit(layer: int, part: int, rows: Floats) -> Floats:
    """Flip the lowest bit of one number of all."""
    if (layer, part) != (1, KEY):
        return rows
    spoilt: Floats = rows.copy()
    spoilt.view(np.uint8).reshape(-1)[4 * 17] ^= 1
    return spoilt


def swapped_blocks(_layer: int, _part: int, rows: Floats) -> Floats:
    """Swap two blocks of tokens in every layer: attention does not care, only bytes can tell."""
    spoilt: Floats = rows.copy()
    spoilt[:BLOCK], spoilt[BLOCK : 2 * BLOCK] = rows[BLOCK : 2 * BLOCK], rows[:BLOCK]
    return spoilt


def missing_layer(layer: int, _part: int, rows: Floats) -> Floats | None:
    """Announce one layer without sending it."""
    return None if layer == 2 else rows


def noise_block(_layer: int, _part: int, rows: Floats) -> Floats:
    """Replace one block of tokens by noise, ten times as large, in every layer."""
    spoilt: Floats = rows.copy()
    noise = np.random.default_rng(3).standard_normal(rows[:BLOCK].shape)
    spoilt[BLOCK : 2 * BLOCK] = 10 * noise * rows.std()
    return spoilt


FAULTS: tuple[Fault, ...] = (none, flipped_bit, swapped_blocks, missing_layer, noise_block)


class FaultyWindow:
    """A window whose puts are spoilt on their way; all else is the window itself."""

    def __init__(self, win: rma.Window, layout: CacheLayout, fault: Fault) -> None:
        self._win, self._layout, self._fault = win, layout, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._win, name)

    def put(self, origin: Floats, target_rank: int, target_disp: int = 0) -> None:
        spoilt = self._spoil(origin, target_disp)
        if spoilt is not None:
            self._win.put(spoilt, target_rank, target_disp)

    def put_notify(
        self, origin: Floats, target_rank: int, target_disp: int = 0, **options: Any
    ) -> None:
        spoilt = self._spoil(origin, target_disp)
        if spoilt is None:
            self._win.notify(target_rank, **options)
        else:
            self._win.put_notify(spoilt, target_rank, target_disp, **options)

    def _spoil(self, rows: Floats, target_disp: int) -> Floats | None:
        first_of_part = self._layout.displacement(0, 1, 0)
        layer, part = divmod(target_disp // first_of_part, 2)
        return self._fault(layer, part, rows)


def send(
    win: rma.Window,
    model: Model,
    layout: CacheLayout,
    mailbox: Mailbox,
    prompt: Sequence[int],
    fault: Fault,
    alone: Generated,
) -> dict[str, bool]:
    """Prefill with a fault and tell what the decode rank's report shows of it."""
    win.wait_notify(READY, source=DECODE, timeout=SECONDS)
    faulty: Any = FaultyWindow(win, layout, fault)
    sent = pd_generate.prefill(faulty, model, layout, prompt)
    report, logits = mailbox.receive(win, DECODE, REPORT, SECONDS)
    return {
        "bytes_equal": report.hashes == hash_layers(sent.cache, len(prompt)),
        "tokens_equal": report.tokens == alone.tokens,
        "logits_equal": same_bits([sent.logits, *logits], alone.logits),
        "logits_close": all(
            np.allclose(one, other, atol=1e-3)
            for one, other in zip([sent.logits, *logits], alone.logits, strict=True)
        ),
    }


def take(win: rma.Window, model: Model, layout: CacheLayout, mailbox: Mailbox) -> None:
    """Receive and decode once, starting on an empty cache."""
    win.local[:] = 0
    with win.lock_all():
        win.notify(PREFILL, notification=READY)
    arrival = pd_generate.receive(win, layout)
    generated = pd_generate.decode(
        win, model, arrival, max_tokens=MAX_TOKENS, show=lambda _token: None, keep_logits=True
    )
    report = DecodeReport(
        tokens=generated.tokens,
        text="",
        bytes_announced=arrival.nbytes,
        hashes=hash_layers(win.local, arrival.length),
        receiving_seconds=arrival.waiting.seconds,
        receiving_cpu_seconds=arrival.waiting.cpu_seconds,
        decode_seconds=0.0,
    )
    mailbox.send(win, PREFILL, REPORT, report, generated.logits)


def load(name: str, *, with_prompt: bool) -> tuple[Weights, list[int]]:
    """Return a model's weights, and on the prefill rank a prompt of three blocks."""
    if name == "tiny":
        return tiny_weights(), tiny_prompt() if with_prompt else []
    checkpoint = weights.read(weights.find_weights(), lambda _step: None)
    question = "What is the capital of France? Answer in one sentence."
    return checkpoint.weights, checkpoint.chat.encode(question) if with_prompt else []


def backend(name: str, tensors: Weights) -> Model:
    """Return a model of the backend of that name."""
    if name == "torch":
        from pd.model_torch import TorchLlama

        return TorchLlama(tensors)
    from pd.model_numpy import NumpyLlama

    return NumpyLlama(tensors)


def main() -> None:
    """Go through all faults over one window."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("tiny", "real"), required=True)
    parser.add_argument("--backend", choices=("numpy", "torch"), required=True)
    parser.add_argument("--json", type=Path, required=True)
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    tensors, prompt = load(chosen.model, with_prompt=comm.rank == PREFILL)
    model = backend(chosen.backend, tensors)
    max_len = 128
    layout = CacheLayout.of(model.config, max_len)
    mailbox = Mailbox(MAX_TOKENS, model.config.vocab_size, with_logits=True)
    shape, dtype = (layout.shape, "f4") if comm.rank == DECODE else (mailbox.nbytes, "u1")
    with rma.Window.allocate(shape, dtype, comm=comm, notifications=5) as win:
        if comm.rank == DECODE:
            for _ in FAULTS:
                take(win, model, layout, mailbox)
            return
        alone = single_process(model, prompt, max_len=max_len, max_tokens=MAX_TOKENS)
        seen = {
            fault.__name__: send(win, model, layout, mailbox, prompt, fault, alone)
            for fault in FAULTS
        }
        chosen.json.write_text(json.dumps(seen, indent=2))


if __name__ == "__main__":
    main()
