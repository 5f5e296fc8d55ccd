# SPDX-License-Identifier: Apache-2.0
"""Ranks in what containers are made of: namespaces, a small /dev/shm, refused system calls.

Nothing of a container tool is needed. ``unshare`` makes the namespaces, which takes root or a
kernel that lets everybody make user namespaces; a process refuses itself system calls with no
privilege at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.machine import MOUNT_NAMESPACE, PID_NAMESPACE, USER_NAMESPACE

_PRELUDE = """
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def prctl(*arguments):
    numbers = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    numbers += [ctypes.c_ulong(0)] * (5 - len(numbers))
    assert libc.prctl(*numbers) == 0, os.strerror(ctypes.get_errno())
"""

# What a hardened container does: nobody may trace this process, and it may trace nobody.
UNTRACEABLE = (
    _PRELUDE
    + """
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
class Data(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32),
                ("inheritable", ctypes.c_uint32)]
header, data = Header(0x20080522, 0), (Data * 2)()
assert libc.capget(ctypes.byref(header), data) == 0
CAP_SYS_PTRACE = 19
data[0].effective &= ~(1 << CAP_SYS_PTRACE)
data[0].permitted &= ~(1 << CAP_SYS_PTRACE)
assert libc.capset(ctypes.byref(header), data) == 0
PR_SET_DUMPABLE = 4
prctl(PR_SET_DUMPABLE, 0)
"""
)


def without_calls(error: str) -> str:
    """Return what makes ptrace and cross-process copies fail, as a container's filter does.

    Parameters
    ----------
    error : str
        Name of the errno that they give: EPERM in today's filters, ENOSYS in others.
    """
    return (
        _PRELUDE
        + f"""
import struct
# ptrace, process_vm_readv, process_vm_writev
numbers = {{"x86_64": (101, 310, 311), "aarch64": (117, 270, 271)}}[platform.machine()]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF: ld [k], jeq #k, ret #k
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.{error}
lines = [(LOAD, 0, 0, 0)]  # the number of the call
for at, number in enumerate(numbers):
    lines.append((EQUAL, len(numbers) - at, 0, number))
lines += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
filter = Program(len(lines), ctypes.addressof(code))
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
prctl(PR_SET_NO_NEW_PRIVS, 1)
prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter))
"""
    )


@dataclass(frozen=True)
class Container:
    """What surrounds ranks.

    Attributes
    ----------
    namespaces : tuple of str
        Options of unshare.
    inside : str
        Shell commands that run in the new namespaces before the rank.
    refusals : str
        Python statements with which each process begins.
    """

    namespaces: tuple[str, ...] = ()
    inside: str = ""
    refusals: str = ""

    def command(self, code: str, *arguments: str) -> list[str]:
        """Return the command that runs Python code in here."""
        command = [sys.executable, "-c", self.refusals + code, *arguments]
        if self.inside:
            command = ["sh", "-c", f'{self.inside} && exec "$@"', "sh", *command]
        if self.namespaces:
            command = ["unshare", *self.namespaces, "--", *command]
        return command


SMALL_SHM = Container(MOUNT_NAMESPACE, "mount -t tmpfs -o size=64m tmpfs /dev/shm")
EVERYTHING = Container(
    PID_NAMESPACE,
    f'{SMALL_SHM.inside} && set -- unshare {" ".join(USER_NAMESPACE)} -- "$@"',
    without_calls("EPERM"),
)


@dataclass(frozen=True)
class Outcome:
    """What a process in a container left."""

    output: str
    log: str
    status: int

    @property
    def report(self) -> Any:
        """Return the JSON object that it printed, or fail with what it said instead."""
        assert self.status == 0, self.log
        return json.loads(self.output)


_TWO_RANKS = """
import os, subprocess, sys
code, job, folder = sys.argv[1:]
ranks = []
for rank in range(2):
    with open(f"{folder}/out{rank}", "w") as out, open(f"{folder}/err{rank}", "w") as err:
        environment = dict(os.environ, HIXL_RMA_LOCAL_JOB=f"{job}:{rank}:2")
        ranks.append(subprocess.Popen([sys.executable, "-c", code], env=environment,
                                      stdout=out, stderr=err))
for rank, process in enumerate(ranks):
    with open(f"{folder}/status{rank}", "w") as file:
        print(process.wait(), file=file)
"""


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return that of a rank: bounded in time, with a log to read."""
    return {**os.environ, "HIXL_RMA_TIMEOUT": "30", "HIXL_RMA_LOG": "info", **extra}


def run_apart(containers: Sequence[Container], code: str, **variables: str) -> list[Outcome]:
    """Run one rank in each container.

    Parameters
    ----------
    containers : sequence of Container
        Where; they share the network namespace of the caller.
    code : str
        What each rank executes.
    **variables : str
        For the ranks' environment.
    """
    job = f"test-{uuid.uuid4()}"
    ranks = [
        subprocess.Popen(
            container.command(code),
            env=environment({"HIXL_RMA_LOCAL_JOB": f"{job}:{rank}:{len(containers)}", **variables}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, container in enumerate(containers)
    ]
    try:
        ended = [rank.communicate(timeout=60) for rank in ranks]
        return [Outcome(*texts, rank.returncode) for texts, rank in zip(ended, ranks, strict=True)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def run_together(container: Container, code: str, folder: Path, **variables: str) -> list[Outcome]:
    """Run two ranks in one container.

    Parameters
    ----------
    container : Container
        Where.
    code : str
        What each rank executes.
    folder : Path
        Receives what they write.
    **variables : str
        For the ranks' environment.
    """
    # Its refusals hold for the ranks as well: what a process refuses itself, its children inherit,
    # but for being untraceable, which ends when another program is executed.
    command = container.command(
        _TWO_RANKS, container.refusals + code, f"test-{uuid.uuid4()}", str(folder)
    )
    started = subprocess.run(
        command,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    return [
        Outcome(
            (folder / f"out{rank}").read_text(),
            (folder / f"err{rank}").read_text(),
            int((folder / f"status{rank}").read_text()),
        )
        for rank in range(2)
    ]


def run_one(container: Container, code: str) -> Outcome:
    """Run one process that is no rank in a container."""
    ended = subprocess.run(
        container.command(code),
        env={name: value for name, value in os.environ.items() if "LOCAL_JOB" not in name},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Outcome(ended.stdout, ended.stderr, ended.returncode)
