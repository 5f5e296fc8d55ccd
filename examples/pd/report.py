# SPDX-License-Identifier: Apache-2.0
"""What each rank tells of its part."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class PrefillReport:
    """What rank 0 knows when the last layer has been sent."""

    prompt_tokens: int
    bytes_moved: int
    transfer_seconds: float
    copy_seconds: float
    prefill_seconds: float
    hashes: list[str]
    transport: str


@dataclass(frozen=True)
class DecodeReport:
    """What rank 1 tells at its end; it travels to rank 0 as JSON, through the window."""

    tokens: list[int]
    text: str
    bytes_announced: int
    hashes: list[str]
    receiving_seconds: float
    receiving_cpu_seconds: float
    decode_seconds: float

    def to_bytes(self) -> bytes:
        """Return the report as it travels."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, message: bytes) -> DecodeReport:
        """Read a report that has travelled."""
        return cls(**json.loads(message))
