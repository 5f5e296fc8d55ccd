#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank reads a prompt, the other writes the answer; between them moves the KV cache.

    mpirun -n 2 python examples/pd_generate.py "What is the capital of France?"

Rank 0 runs the prompt through the model (prefill) and rank 1 generates from there (decode). What
makes the answer is the cache: the keys and values of every token in every layer. It lies in a
window of rank 1, which takes no part in filling it:

    rank 0                                      rank 1
    notify(LENGTH, value=tokens)          ->    wait_notify(LENGTH)
    for each layer, once it is computed:
        put(keys)                         ->    (window memory changes)
        put_notify(values, LAYER)         ->    wait_notify(LAYER): this layer is complete
    notify(FIRST_TOKEN, value=token)      ->    wait_notify(FIRST_TOKEN)
                                                generate from its own memory
    wait_notify(REPORT)                   <-    put_notify(report, REPORT)

A notification is seen after all that its origin put before it: one count of LAYER covers the keys
as well as the values. Rank 1 learns a length, a token and cache rows, never the prompt. Started by
one command line it could read the prompt there, and drops it unread; it needs none, as this shows:

    mpirun -n 1 python examples/pd_generate.py "A prompt" : -n 1 python examples/pd_generate.py
"""

from __future__ import annotations

import pd.one_thread  # noqa: F401  (before numpy, which reads it when it is imported)

# isort: split

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import hixl_rma as rma
from pd import cli, summary
from pd.cache_layout import KEY, VALUE, CacheLayout, hash_layers
from pd.check import compare
from pd.llama import Floats, Generated, Model, generate
from pd.loading import Loaded, load
from pd.mailbox import Mailbox
from pd.measure import Stopwatch, copy_seconds
from pd.report import DecodeReport, PrefillReport
from pd.text import TextStream

PREFILL, DECODE = 0, 1
LENGTH, LAYER, FIRST_TOKEN, REPORT = range(4)
#: Seconds after which a rank no longer believes that its peer will go on.
PATIENCE = 120.0


@dataclass(frozen=True)
class Sent:
    """What rank 0 is left with: its own copy of the cache, and the logits of the first token."""

    cache: Floats
    logits: Floats
    transfers: Stopwatch


def prefill(win: rma.Window, model: Model, layout: CacheLayout, prompt: Sequence[int]) -> Sent:
    """Rank 0: compute the prompt, sending each layer's keys and values as soon as they exist."""
    cache, transfers = layout.empty(), Stopwatch()

    def send(layer: int, first: int, last: int) -> None:
        keys, values = cache[layer, KEY, first:last], cache[layer, VALUE, first:last]
        nbytes = keys.nbytes + values.nbytes
        with transfers:
            win.put(keys, DECODE, layout.displacement(layer, KEY, first))
            place = layout.displacement(layer, VALUE, first)
            win.put_notify(values, DECODE, place, notification=LAYER, value=nbytes)

    with win.lock_all():
        win.notify(DECODE, notification=LENGTH, value=len(prompt))
        logits = model.session(cache, on_layer=send).feed(prompt)
        win.notify(DECODE, notification=FIRST_TOKEN, value=int(logits.argmax()))
        with transfers:
            win.flush(DECODE)
    return Sent(cache, logits, transfers)


@dataclass(frozen=True)
class Arrival:
    """All that rank 1 is told, and how it waited for it."""

    length: int
    first_token: int
    nbytes: int
    waiting: Stopwatch


def receive(win: rma.Window, layout: CacheLayout) -> Arrival:
    """Rank 1: sleep until each layer is complete. No byte of the cache is touched here."""
    length = win.wait_notify(LENGTH, source=PREFILL, timeout=PATIENCE).value
    cli.say(f"rank 1: {length} tokens to come; layers complete:")
    waiting, nbytes = Stopwatch(), 0
    with waiting:
        for layer in range(layout.num_layers):
            nbytes += win.wait_notify(LAYER, source=PREFILL, timeout=PATIENCE).value
            cli.say(f" {layer + 1}")
        first_token = win.wait_notify(FIRST_TOKEN, source=PREFILL, timeout=PATIENCE).value
    cli.say("\n")
    return Arrival(length, first_token, nbytes, waiting)


def decode(
    win: rma.Window,
    model: Model,
    arrival: Arrival,
    *,
    max_tokens: int,
    show: Callable[[int], None],
    keep_logits: bool,
) -> Generated:
    """Rank 1: go on with the sequence, over the cache in its own window memory."""
    session = model.session(model.cache_in(win), filled=arrival.length)
    return generate(
        session,
        arrival.first_token,
        max_tokens=max_tokens,
        eos=model.config.eos_token,
        show=show,
        keep_logits=keep_logits,
    )


def run_prefill(win: rma.Window, mine: Loaded, layout: CacheLayout, mailbox: Mailbox) -> int:
    """Rank 0 from the prompt to the summary; returns the exit status."""
    options = mine.options
    with win.lock_all():  # map every page, as in a server whose window has long been in use
        win.put(layout.empty(), DECODE)
    cli.say(f"rank 0: prefill of {len(mine.prompt)} tokens\n")
    whole = Stopwatch()
    with whole:
        sent = prefill(win, mine.model, layout, mine.prompt)
    patience = PATIENCE + options.max_tokens  # a second for each token: ten times what it takes
    report, logits = mailbox.receive(win, DECODE, REPORT, patience)
    length = len(mine.prompt)
    told = PrefillReport(
        prompt_tokens=length,
        bytes_moved=layout.nbytes(length),
        transfer_seconds=sent.transfers.seconds,
        copy_seconds=copy_seconds(layout, sent.cache, length),
        prefill_seconds=whole.seconds,
        hashes=hash_layers(sent.cache, length),
        transport=win.transports[DECODE],
    )
    checked = compare(mine, report, [sent.logits, *logits]) if options.check else None
    result = summary.collect(options, told, report, checked)
    summary.show(result)
    if options.json is not None:
        summary.write_json(options.json, result)
    return 0 if summary.succeeded(result) else 1


def run_decode(win: rma.Window, mine: Loaded, layout: CacheLayout, mailbox: Mailbox) -> int:
    """Rank 1 from the first notification to its report; returns the exit status."""
    arrival = receive(win, layout)
    text, decoding = TextStream(mine.chat), Stopwatch()
    with decoding:
        generated = decode(
            win,
            mine.model,
            arrival,
            max_tokens=mine.options.max_tokens,
            show=lambda token: print(text.add(token), end="", flush=True),
            keep_logits=mine.options.check,
        )
    print(text.finish(), flush=True)
    report = DecodeReport(
        tokens=generated.tokens,
        text=text.text,
        bytes_announced=arrival.nbytes,
        hashes=hash_layers(win.local, arrival.length),
        receiving_seconds=arrival.waiting.seconds,
        receiving_cpu_seconds=arrival.waiting.cpu_seconds,
        decode_seconds=decoding.seconds,
    )
    mailbox.send(win, PREFILL, REPORT, report, generated.logits)
    return 0


def main() -> int:
    """Load the model on both ranks, meet in a window, play one part each."""
    comm = cli.two_ranks()
    options = cli.options_of(comm)
    mine = cli.together(comm, lambda: load(options, loud=comm.rank == PREFILL))
    layout = CacheLayout.of(mine.model.config, mine.options.max_len)
    mailbox = Mailbox.of(mine)
    # Each rank brings its own size and unit: rank 1 the cache, rank 0 room for a report.
    shape, dtype = (layout.shape, "f4") if comm.rank == DECODE else (mailbox.nbytes, "u1")
    with rma.Window.allocate(shape, dtype, comm=comm, notifications=4) as win:
        run = run_prefill if comm.rank == PREFILL else run_decode
        return run(win, mine, layout, mailbox)


if __name__ == "__main__":
    sys.exit(cli.run(main))
