# SPDX-License-Identifier: Apache-2.0
"""`--check`: the same generation in one process, without a window, compared in every bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pd.llama import Floats, Generated, Model, generate
from pd.loading import Loaded
from pd.report import DecodeReport


@dataclass(frozen=True)
class Comparison:
    """The two ranks against one process that did all by itself."""

    tokens_equal: bool
    text_equal: bool
    logits_equal: bool


def single_process(
    model: Model, prompt: Sequence[int], *, max_len: int, max_tokens: int
) -> Generated:
    """Return the tokens and the logits that chose each of them, the first included."""
    session = model.reference_session(max_len)
    logits = session.feed(prompt)
    first_token, eos = int(logits.argmax()), model.config.eos_token
    generated = generate(session, first_token, max_tokens=max_tokens, eos=eos, keep_logits=True)
    return Generated(generated.tokens, [logits, *generated.logits])


def same_bits(one: Sequence[Floats], other: Sequence[Floats]) -> bool:
    """Tell whether two runs made the same logits, without any tolerance."""
    return len(one) == len(other) and all(
        left.tobytes() == right.tobytes() for left, right in zip(one, other, strict=True)
    )


def compare(mine: Loaded, report: DecodeReport, logits: Sequence[Floats]) -> Comparison:
    """Generate once more on this rank alone; `logits` are those that chose each token before."""
    options = mine.options
    alone = single_process(
        mine.model, mine.prompt, max_len=options.max_len, max_tokens=options.max_tokens
    )
    return Comparison(
        tokens_equal=alone.tokens == report.tokens,
        text_equal=mine.chat.decode(alone.tokens) == report.text,
        logits_equal=same_bits(alone.logits, logits),
    )
