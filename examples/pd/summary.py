# SPDX-License-Identifier: Apache-2.0
"""What the two ranks measured, as a dictionary for `--json` and as a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pd.check import Comparison
from pd.cli import Options
from pd.report import DecodeReport, PrefillReport


def collect(
    options: Options,
    prefill: PrefillReport,
    decode: DecodeReport,
    comparison: Comparison | None,
) -> dict[str, Any]:
    """Return everything measured, under the names of the JSON file."""
    layers = [
        {"layer": layer, "sent": sent, "received": received, "equal": sent == received}
        for layer, (sent, received) in enumerate(zip(prefill.hashes, decode.hashes, strict=True))
    ]
    speed = prefill.bytes_moved / prefill.transfer_seconds / 1e9
    limit = prefill.bytes_moved / prefill.copy_seconds / 1e9
    decoded = len(decode.tokens) - 1
    return {
        "backend": options.backend,
        "transport": prefill.transport,
        "prompt": options.prompt,
        "prompt_is_on_ranks": [0],
        "prompt_tokens": prefill.prompt_tokens,
        "tokens": decode.tokens,
        "text": decode.text,
        "bytes_moved": prefill.bytes_moved,
        "bytes_announced": decode.bytes_announced,
        "layers": layers,
        "cache_equal": all(layer["equal"] for layer in layers),
        "transfer_seconds": prefill.transfer_seconds,
        "transfer_gb_per_second": speed,
        "copy_limit_gb_per_second": limit,
        "share_of_copy_limit": speed / limit,
        "receiving_seconds": decode.receiving_seconds,
        "receiving_cpu_seconds": decode.receiving_cpu_seconds,
        "receiving_cpu_percent": 100 * decode.receiving_cpu_seconds / decode.receiving_seconds,
        "prefill_seconds": prefill.prefill_seconds,
        "decode_seconds": decode.decode_seconds,
        "decode_tokens_per_second": decoded / decode.decode_seconds if decoded else None,
        "check": None if comparison is None else asdict(comparison),
    }


def succeeded(result: dict[str, Any]) -> bool:
    """Tell whether the cache arrived intact and, where it was asked, the check passed."""
    check = result["check"]
    return bool(result["cache_equal"]) and (check is None or all(check.values()))


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Write the JSON file."""
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def table_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what people want to know, as pairs of a name and a text."""
    equal = sum(layer["equal"] for layer in result["layers"])
    layers = len(result["layers"])
    rate = result["decode_tokens_per_second"]
    pace = f", {rate:.1f} tokens/s" if rate is not None else ""
    rows = [
        ("prefill, rank 0", f"{result['prompt_tokens']} tokens, {result['prefill_seconds']:.2f} s"),
        ("decode, rank 1", f"{len(result['tokens'])} tokens, no prompt{pace}"),
        (
            "cache moved",
            f"{result['bytes_moved'] / 1e6:.2f} MB, one notification for each of {layers} layers",
        ),
        (
            "time in transfers",
            f"{result['transfer_seconds'] * 1e3:.2f} ms over {result['transport']}, "
            f"{result['transfer_gb_per_second']:.1f} GB/s, "
            f"{result['share_of_copy_limit']:.0%} of numpy's copy",
        ),
        (
            "receiver's processor",
            f"{result['receiving_cpu_percent']:.1f} % of {result['receiving_seconds']:.2f} s "
            "while receiving",
        ),
        ("cache bytes equal", f"{'yes' if equal == layers else 'NO'}, {equal} of {layers} layers"),
    ]
    if result["check"] is not None:
        told = [
            f"{name.removesuffix('_equal')} {'equal' if same else 'DIFFER'}"
            for name, same in result["check"].items()
        ]
        rows.append(("against one process", ", ".join(told)))
    return rows


def show(result: dict[str, Any]) -> None:
    """Print the table: with rich where that is installed, plain otherwise."""
    rows = table_rows(result)
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        width = max(len(name) for name, _ in rows)
        print("", *(f"{name:<{width}}  {text}" for name, text in rows), sep="\n", flush=True)
        return
    table = Table(show_header=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
