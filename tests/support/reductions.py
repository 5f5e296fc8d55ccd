# SPDX-License-Identifier: Apache-2.0
"""What numpy says an accumulate of one type with one operation gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_UFUNCS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "replace": lambda target, origin: origin,
    "no_op": lambda target, origin: target,
}
OPERATIONS = tuple(_UFUNCS)

_ANY = ("replace", "no_op")
_BY_KIND = {
    "b": OPERATIONS,
    "i": OPERATIONS,
    "u": OPERATIONS,
    "f": ("sum", "prod", "min", "max", *_ANY),
    "c": ("sum", "prod", *_ANY),
}
INTEGERS = "bBhHiIlLqQ"
TYPES = "?" + INTEGERS + "efdgFDG"


def operations_of(dtype: npt.DTypeLike) -> tuple[str, ...]:
    """Return the operations that have a meaning for elements of that type."""
    return _BY_KIND[np.dtype(dtype).kind]


def expected(op: str, target: Array, origin: Array) -> Array:
    """Return the target's elements after an accumulate of the origin's."""
    with np.errstate(all="ignore"):
        result = _UFUNCS[op](target, origin)
    return np.asarray(result).astype(target.dtype)


def sample(dtype: npt.DTypeLike, count: int, seed: int) -> Array:
    """Return elements for which sums and products are exact, or wrap around as integers do."""
    kind = np.dtype(dtype)
    generator = np.random.default_rng(seed)
    if kind.kind == "b":
        return generator.integers(0, 2, count).astype(kind)
    if kind.kind in "iu":
        raw = generator.integers(0, 256, count * kind.itemsize, dtype=np.uint8)
        return raw.view(kind)
    whole = generator.integers(-9, 10, count)
    if kind.kind == "c":
        return (whole + 1j * generator.integers(-9, 10, count)).astype(kind)
    return (whole / 2).astype(kind)


def assert_equal(actual: Array, wanted: Array, what: str) -> None:
    """Compare by value: the padding bytes of long doubles carry none."""
    same = (actual == wanted) | ((actual != actual) & (wanted != wanted))
    if not same.all():
        first = int(np.flatnonzero(~same)[0])
        message = f"{what}: element {first} is {actual.flat[first]}, not {wanted.flat[first]}"
        raise AssertionError(message)
