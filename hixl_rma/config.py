# SPDX-License-Identifier: Apache-2.0
"""Configuration: an argument wins over the environment, and that over the default.

Every variable of the environment stands once, in `VARIABLES`: its name, what it takes, what it
means and how it is read. `Config.from_environment` and ``hixl-rma info --env`` both go by that
table, so that what is documented is what is read.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from hixl_rma.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "LOCAL_JOB",
    "LOG_LEVELS",
    "PREFIX",
    "TRANSPORTS",
    "VARIABLES",
    "Config",
    "EnvironmentReport",
    "Variable",
    "describe_environment",
    "parse_log_level",
    "validate_timeout",
    "warn_about_unknown_variables",
]

PREFIX = "HIXL_RMA_"
LOCAL_JOB = "HIXL_RMA_LOCAL_JOB"
TRANSPORTS = ("self", "shm", "cma", "staged")
LOG_LEVELS = ("debug", "info", "warning")

_SIZE_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_warned: set[str] = set()


def validate_timeout(value: object, name: str = "timeout") -> float | None:
    """Check a time-out.

    Parameters
    ----------
    value : object
        None, or a finite real number >= 0 [s]; numpy scalars are numbers, bools are not.
    name : str, default "timeout"
        What the error calls it.

    Returns
    -------
    float or None
        The time-out [s]; None waits without one.

    Raises
    ------
    ArgumentTypeError
        When the value is neither None nor a real number.
    ArgumentError
        When the number is negative, infinite or not a number.
    """
    return None if value is None else _number(value, name, "a number >= 0 or None")


def _number(value: object, name: str, takes: str = "a number >= 0") -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        msg = f"{name} takes {takes}, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        hint = "; None waits without a time-out" if number == math.inf else ""
        msg = f"{name} takes a finite number >= 0, not {value!r}{hint}"
        raise ArgumentError(msg)
    return number


def _transports(value: object, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        msg = f"{name} takes a tuple of names, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    for item in value:
        if not isinstance(item, str):
            msg = f"{name} takes names, not {type(item).__name__}"
            raise ArgumentTypeError(msg)
        if item not in TRANSPORTS:
            msg = (
                f"{name}: there is no transport {item!r} in this version (there are "
                f"{', '.join(TRANSPORTS)}){_did_you_mean(item, TRANSPORTS)}"
            )
            raise ArgumentError(msg)
    if not value:
        msg = f"{name} needs at least one of {', '.join(TRANSPORTS)}"
        raise ArgumentError(msg)
    return tuple(dict.fromkeys(value))


def _bytes(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        msg = f"{name} takes a number of bytes, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    number = int(value)
    if not 0 < number < 1 << 63:
        msg = f"{name} takes a number of bytes > 0, not {number}"
        raise ArgumentError(msg)
    return number


def _log_level(value: object, name: str) -> str:
    if not isinstance(value, str):
        msg = f"{name} takes a level's name, not {type(value).__name__}"
        raise ArgumentTypeError(msg)
    level = value.lower()
    if level not in LOG_LEVELS:
        msg = f"{name} takes {', '.join(LOG_LEVELS)}, not {value!r}"
        raise ArgumentError(msg)
    return level


def _did_you_mean(word: str, words: tuple[str, ...]) -> str:
    # Without the prefix that all variables share, which would make any two of them look alike.
    by_ending = {known.removeprefix(PREFIX): known for known in words}
    close = difflib.get_close_matches(word.removeprefix(PREFIX), by_ending, n=1, cutoff=0.6)
    return f"; did you mean {by_ending[close[0]]}?" if close else ""


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"{text!r} is not a number"
        raise ArgumentError(msg) from None


def _parse_timeout(text: str) -> float | None:
    return None if text.lower() == "none" else validate_timeout(_parse_number(text))


def _parse_spin(text: str) -> float:
    return _number(_parse_number(text), "spin_us")


def _parse_transports(text: str) -> tuple[str, ...]:
    names = [name.strip().lower() for name in text.split(",")]
    return _transports([name for name in names if name], "transports")


def _parse_bytes(text: str) -> int:
    digits = text.lower().removesuffix("b").removesuffix("i")
    suffix = digits[-1:] if digits[-1:] in ("k", "m", "g") else ""
    digits = digits.removesuffix(suffix)
    if not (digits.isascii() and digits.isdigit()):
        msg = f"{text!r} is not a number of bytes"
        raise ArgumentError(msg)
    return _bytes(int(digits) * _SIZE_SUFFIXES[suffix], "notification_cap")


def parse_log_level(text: str) -> str:
    """Return the level that a value of ``HIXL_RMA_LOG`` names.

    Raises
    ------
    ArgumentError
        When it names none.
    """
    return _log_level(text, "log")


@dataclasses.dataclass(frozen=True)
class Variable:
    """One variable of the environment.

    Attributes
    ----------
    name : str
        Its name.
    takes : str
        The values it takes, for people.
    meaning : str
        What it sets, for people.
    field : str
        The field of `Config` it sets; "" when another part of the package reads it.
    parse : callable or None
        Turns its text into the value of the field.
    """

    name: str
    takes: str
    meaning: str
    field: str = ""
    parse: Callable[[str], object] | None = None

    def read(self, environ: Mapping[str, str]) -> dict[str, object]:
        """Return the field and its value; nothing when the variable is unset or empty.

        Raises
        ------
        ArgumentError
            When it has a value that it does not take.
        """
        text = environ.get(self.name, "").strip()
        if not text or self.parse is None:
            return {}
        try:
            return {self.field: self.parse(text)}
        except ArgumentError as error:
            msg = f"{self.name}={text!r}: it takes {self.takes} ({error.detail})"
            raise ArgumentError(msg) from None


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "HIXL_RMA_TIMEOUT",
        "seconds >= 0, or none",
        "time-out of every call that is given none",
        "timeout",
        _parse_timeout,
    ),
    Variable(
        "HIXL_RMA_TRANSPORTS",
        f"names from {', '.join(TRANSPORTS)}, with commas between",
        "transports that may move data (unset: all)",
        "transports",
        _parse_transports,
    ),
    Variable(
        "HIXL_RMA_SPIN_US",
        "microseconds >= 0",
        "how long a waiting call spins before it sleeps (unset: 50, or 0 on too few cores)",
        "spin_us",
        _parse_spin,
    ),
    Variable(
        "HIXL_RMA_LOG",
        f"one of {', '.join(LOG_LEVELS)}",
        "print the package's log lines on standard error",
        "log",
        parse_log_level,
    ),
    Variable(
        "HIXL_RMA_NOTIFICATION_CAP",
        "bytes, with K, M or G behind them if you like",
        "most memory for a window's notification records, per rank",
        "notification_cap",
        _parse_bytes,
    ),
    Variable(
        LOCAL_JOB,
        "name:rank:size",
        "joins processes on one host without MPI, where comm=None",
    ),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings of a window.

    Parameters
    ----------
    timeout : float or None, default None
        Time-out [s] of calls that are given none; None waits without one.
    transports : tuple of str or None, default None
        Transports that may move data; None allows all.
    spin_us : float or None, default None
        How long [us] a waiting call spins before it sleeps; None takes 50 while every rank of the
        host has a processor, and 0 otherwise.
    log : str or None, default None
        Level from which log lines go to standard error; None installs no handler.
    notification_cap : int, default 1 GiB
        Most memory [bytes] of a window's notification records, per rank.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        When a value is of the wrong type or not possible.
    """

    timeout: float | None = None
    transports: tuple[str, ...] | None = None
    spin_us: float | None = None
    log: str | None = None
    notification_cap: int = 1 << 30

    def __post_init__(self) -> None:
        """Check every value and bring it into its one form."""
        values: dict[str, Any] = {
            "timeout": validate_timeout(self.timeout),
            "spin_us": None if self.spin_us is None else _number(self.spin_us, "spin_us"),
            "notification_cap": _bytes(self.notification_cap, "notification_cap"),
        }
        if self.transports is not None:
            values["transports"] = _transports(self.transports, "transports")
        if self.log is not None:
            values["log"] = _log_level(self.log, "log")
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the class is frozen for everyone else

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, **arguments: object
    ) -> Config:
        """Read the environment; arguments win over it.

        Parameters
        ----------
        environ : mapping of str to str or None, default None
            The environment; None takes that of the process. An empty value counts as unset.
        **arguments
            Fields that the caller sets.

        Returns
        -------
        Config
            The settings.

        Raises
        ------
        ArgumentError
            When a variable has a value that it does not take; the text names both.
        ArgumentTypeError
            When an argument has the wrong type.

        Notes
        -----
        Names that begin with ``HIXL_RMA_`` and that nobody reads give one RuntimeWarning each.
        """
        environ = os.environ if environ is None else environ
        warn_about_unknown_variables(environ)
        values: dict[str, Any] = {}
        for variable in VARIABLES:
            if variable.field and variable.field not in arguments:
                values.update(variable.read(environ))
        return cls(**{**values, **arguments})


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = {variable.name for variable in VARIABLES}
    return sorted(
        name
        for name in environ
        if name.startswith(PREFIX) and name not in known and not name.startswith(f"{PREFIX}TEST_")
    )


def _unknown_text(name: str) -> str:
    known = tuple(variable.name for variable in VARIABLES)
    return f"{name} is set, but nothing reads it{_did_you_mean(name, known)}"


def warn_about_unknown_variables(environ: Mapping[str, str] | None = None) -> None:
    """Warn once in a process about each ``HIXL_RMA_`` variable that nothing reads.

    Parameters
    ----------
    environ : mapping of str to str or None, default None
        The environment; None takes that of the process.
    """
    for name in _unknown_variables(os.environ if environ is None else environ):
        if name not in _warned:
            _warned.add(name)
            warnings.warn(_unknown_text(name), RuntimeWarning, stacklevel=3)


@dataclasses.dataclass(frozen=True)
class EnvironmentReport:
    """What ``info --env`` says of one variable.

    Attributes
    ----------
    name, takes, meaning : str
        As in `Variable`; the latter two are empty for a variable that nothing reads.
    value : str or None
        Its value in the environment.
    default : str
        What holds when it is unset.
    problem : str
        What is wrong with it; "" when nothing is.
    """

    name: str
    value: str | None
    default: str
    takes: str
    meaning: str
    problem: str = ""


def describe_environment(environ: Mapping[str, str] | None = None) -> list[EnvironmentReport]:
    """Describe every variable that is read, and every one that is set and is not.

    Parameters
    ----------
    environ : mapping of str to str or None, default None
        The environment; None takes that of the process.

    Returns
    -------
    list of EnvironmentReport
        The variables, in the order of `VARIABLES`, then the unknown ones by name.
    """
    environ = os.environ if environ is None else environ
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}
    reports = []
    for variable in VARIABLES:
        value = environ.get(variable.name)
        default = defaults.get(variable.field)
        problem = ""
        try:
            variable.read(environ)
        except ArgumentError as error:
            problem = error.detail
        reports.append(
            EnvironmentReport(
                variable.name,
                value,
                "unset" if default is None else str(default),
                variable.takes,
                variable.meaning,
                problem,
            )
        )
    for name in _unknown_variables(environ):
        reports.append(EnvironmentReport(name, environ[name], "", "", "", _unknown_text(name)))
    return reports
