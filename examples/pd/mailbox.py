# SPDX-License-Identifier: Apache-2.0
"""How the decode rank tells the prefill rank what came of it: through that rank's window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import hixl_rma as rma
from pd.llama import Floats
from pd.loading import Loaded
from pd.report import DecodeReport


@dataclass(frozen=True)
class Mailbox:
    """Memory in units of bytes: a report, and behind it the logits of each step if wanted."""

    max_tokens: int
    vocab_size: int
    with_logits: bool

    @classmethod
    def of(cls, loaded: Loaded) -> Mailbox:
        """Return the mailbox for what was asked for."""
        options = loaded.options
        return cls(options.max_tokens, loaded.model.config.vocab_size, options.check)

    @property
    def logits_at(self) -> int:
        """Where the logits begin: a token takes at most a line of the vocabulary in the report."""
        return 65536 + 256 * self.max_tokens

    @property
    def nbytes(self) -> int:
        """The size of the window memory that this takes."""
        logits = self.max_tokens * self.vocab_size * 4 if self.with_logits else 0
        return self.logits_at + logits

    def send(
        self,
        win: rma.Window,
        rank: int,
        notification: int,
        report: DecodeReport,
        logits: Sequence[Floats],
    ) -> None:
        """Put the report, whose notification also covers the logits that were put before it."""
        message = np.frombuffer(report.to_bytes(), np.uint8)
        with win.lock_all():
            if self.with_logits and logits:
                win.put(np.stack(logits), rank, self.logits_at)
            win.put_notify(message, rank, 0, notification=notification, value=message.size)

    def receive(
        self, win: rma.Window, rank: int, notification: int, timeout: float
    ) -> tuple[DecodeReport, list[Floats]]:
        """Wait for the report and read it from this rank's own memory."""
        nbytes = win.wait_notify(notification, source=rank, timeout=timeout).value
        report = DecodeReport.from_bytes(win.local[:nbytes].tobytes())
        # The first token was chosen by the prefill rank: it has the logits of that one.
        steps = len(report.tokens) - 1 if self.with_logits else 0
        sent = win.local[self.logits_at :][: steps * self.vocab_size * 4].view(np.float32)
        return report, list(sent.reshape(steps, self.vocab_size).copy())
