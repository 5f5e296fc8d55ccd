# SPDX-License-Identifier: Apache-2.0
"""What is said where the compiled module does not load: why, and the line that mends it.

`import hixl_rma` is an ImportError then. The command ``python -m hixl_rma`` goes on without the
module: it is what people run to learn what is wrong.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

__all__ = ["MEND", "NativeModuleError", "as_command"]

MEND = "pip install --force-reinstall --no-deps hixl-rma  (in a clone: make module)"
_NAME = "hixl_rma._core"


class NativeModuleError(ImportError):
    """The compiled module does not load.

    Attributes
    ----------
    reason : str
        What the loader says.
    """

    def __init__(self, error: ImportError) -> None:
        self.reason = _reason(error)
        text = f"the native module of hixl_rma does not load: {self.reason}\nTo mend it: {MEND}"
        super().__init__(text, name=_NAME, path=error.path)


def _reason(error: ImportError, folder: Path = Path(__file__).parent) -> str:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if any((folder / f"_core{ending}").exists() for ending in (suffix, ".abi3.so", ".so")):
        return " ".join(str(error).split())
    # Python's own text takes a missing module for a circular import.
    others = sorted(path.name for path in folder.glob("_core.*.so"))
    if others:
        return f"{folder} has {', '.join(others)}, but this Python takes _core{suffix}"
    return f"{folder} has no _core{suffix}"


def as_command() -> bool:
    """Return whether this process runs the package's own command."""
    if sys.argv[:1] == ["-m"]:  # while the package is located, before its __main__ runs
        return any(word in ("hixl_rma", "-mhixl_rma") for word in sys.orig_argv)
    return Path(sys.argv[0] if sys.argv else "").name == "hixl-rma"
