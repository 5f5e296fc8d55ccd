# SPDX-License-Identifier: Apache-2.0
"""What this machine lets this process do, asked by trying: where a skip may be expected."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType

# How unshare is told to make one; a PID namespace comes with a /proc of its own.
MOUNT_NAMESPACE = ("--mount",)
PID_NAMESPACE = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
USER_NAMESPACE = ("--user", "--map-user=1000", "--map-group=1000")

_NOBODY = 65534


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@functools.cache
def may_change_user() -> bool:
    """Tell whether this user may become another: root with the capability for it."""
    # In a process of its own: there is no way back.
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import os; os.setresuid({_NOBODY}, {_NOBODY}, {_NOBODY})",
    ]
    return (
        os.getuid() != _NOBODY and not subprocess.run(command, stderr=subprocess.DEVNULL).returncode
    )


@functools.cache
def may_copy_across_processes() -> bool:
    """Tell whether the kernel lets this process use process_vm_readv at all, here on itself."""
    origin, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    ranges = [_Range(ctypes.addressof(memory), 1) for memory in (target, origin)]
    copied = ctypes.CDLL(None).process_vm_readv(
        os.getpid(), ctypes.byref(ranges[0]), 1, ctypes.byref(ranges[1]), 1, 0
    )
    return bool(copied == 1 and target.raw == b"x")


@functools.cache
def kernel_is_older_than(major: int, minor: int) -> bool:
    """Tell whether the kernel is older than that version."""
    numbers = [int(part) for part in re.findall(r"\d+", os.uname().release)[:2]]
    return tuple(numbers) < (major, minor)


@functools.cache
def may_unshare(*namespaces: str) -> bool:
    """Tell whether this user may make such namespaces and, with a mount namespace, mount there.

    Parameters
    ----------
    *namespaces : str
        Options of unshare.
    """
    inside = "mount -t tmpfs tmpfs /dev/shm" if namespaces == MOUNT_NAMESPACE else "true"
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    command = [unshare, *namespaces, "--", "sh", "-c", inside]
    return not subprocess.run(command, capture_output=True, check=False).returncode


CONDITIONS: Mapping[str, Callable[[], bool]] = MappingProxyType(
    {
        "": lambda: True,
        "another user is out of reach": lambda: not may_change_user(),
        "root without its powers": lambda: os.getuid() == 0 and not may_change_user(),
        "cross-process copies are refused": lambda: not may_copy_across_processes(),
        "Linux before 5.14": lambda: kernel_is_older_than(5, 14),
        "mount namespaces are refused": lambda: not may_unshare(*MOUNT_NAMESPACE),
        "PID namespaces are refused": lambda: not may_unshare(*PID_NAMESPACE),
        "user namespaces are refused": lambda: not may_unshare(*USER_NAMESPACE),
    }
)
"""By the `where` of an expected skip: whether that holds here."""
