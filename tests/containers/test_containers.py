# SPDX-License-Identifier: Apache-2.0
"""Windows work in containers: hardened, with a small /dev/shm, in namespaces of their own.

Data moves by what each container leaves; where cross-process copy is refused, created windows fall
back to staged, and say why in the log, in the error and in the report.
"""

import pytest

from support.containers import (
    EVERYTHING,
    SMALL_SHM,
    UNTRACEABLE,
    Container,
    run_apart,
    run_one,
    run_together,
    without_calls,
)
from support.machine import MOUNT_NAMESPACE, PID_NAMESPACE, USER_NAMESPACE, may_unshare

# Puts, accumulates and notifications between two ranks, in both kinds of windows.
RANK = """
import json
import numpy as np, hixl_rma as rma
chosen = {}
for kind in ("allocate", "create"):
    memory = np.zeros(1 << 16, "i8")
    if kind == "allocate":
        win = rma.Window.allocate(1 << 16, "i8")
    else:
        win = rma.Window.create(memory)
    with win:
        local, peer = win.local, 1 - win.rank
        with win.fence():
            win.put(np.arange(1000) + win.rank, peer, 64)
        with win.lock_all():
            win.accumulate(np.array([5]), 0, 0)
            win.accumulate(np.array([7]), 1, 0)
            win.flush_all()
            win.put_notify(np.full(9000, 3), peer, 2000, notification=1)
            note = win.wait_notify(1, timeout=20)
        assert (note.source, note.count) == (peer, 1), note
        assert (local[2000:11000] == 3).all()
        win.fence()
        assert local[0] == (10, 14)[win.rank], local[0]
        assert (local[64:1064] == np.arange(1000) + peer).all()
        back = np.zeros(1000, "i8")
        with win.lock(peer):
            win.get(back, peer, 64)
        assert (back == np.arange(1000) + win.rank).all()
        chosen[kind] = win.transports[peer]
        win.fence()
print(json.dumps(chosen))
"""

LARGE = """
import json, os
import numpy as np, hixl_rma as rma
size = 256 << 20
with rma.Window.allocate(size) as win:
    peer, half = 1 - win.rank, size // 2
    with win.lock_all():
        win.put(np.full(half, 7 + win.rank, "u1"), peer, 0)
        win.put_notify(np.full(half, 17 + win.rank, "u1"), peer, half, notification=2)
        win.wait_notify(2, timeout=30)
    assert (win.local[:half] == 7 + peer).all()
    assert (win.local[half:] == 17 + peer).all()
    shm = os.statvfs("/dev/shm")
    print(json.dumps({"chosen": win.transports[peer], "shm": shm.f_blocks * shm.f_frsize}))
    win.fence()
"""

INFO = """
import runpy, sys
sys.argv[1:] = ["info", "--json"]
runpy.run_module("hixl_rma", run_name="__main__")
"""

REFUSING = {error: Container(refusals=without_calls(error)) for error in ("EPERM", "ENOSYS")}
HARDENED = Container(refusals=UNTRACEABLE)
OWN_PID = Container(PID_NAMESPACE)
OWN_USER = Container(USER_NAMESPACE)


@pytest.fixture
def possible():
    """Skip where this user may not make a container: possible(container) -> container."""

    def check(container):
        needed = [container.namespaces]
        if container is EVERYTHING:
            needed += [MOUNT_NAMESPACE, USER_NAMESPACE]
        for namespaces in needed:
            if not may_unshare(*namespaces):
                pytest.skip(f"this user may not unshare {' '.join(namespaces)}")
        return container

    return check


def assert_falls_back(outcomes, reason):
    """Allocated windows go by shm, created ones by staged, and each rank's log says why."""
    for rank, outcome in enumerate(outcomes):
        assert outcome.report == {"allocate": "shm", "create": "staged"}
        wanted = f"rank {rank} reaches rank {1 - rank} through staged; cma refused: "
        (line,) = (line for line in outcome.log.splitlines() if wanted in line)
        assert reason in line


def assert_works(outcomes):
    """Nothing here refuses cma; the machine around may."""
    for outcome in outcomes:
        assert outcome.report["allocate"] == "shm"
        assert outcome.report["create"] in ("cma", "staged")


# -- no permission to trace ---------------------------------------------------------------------


@pytest.mark.parametrize("error", REFUSING)
def test_ranks_whose_system_calls_are_filtered_fall_back_to_staged(error):
    assert_falls_back(run_apart([REFUSING[error]] * 2, RANK), "cross-process copy was refused")


def test_ranks_that_may_not_trace_each_other_fall_back_to_staged():
    assert_falls_back(run_apart([HARDENED] * 2, RANK), "cross-process copy was refused")


@pytest.mark.parametrize("container", [HARDENED, REFUSING["EPERM"]], ids=["hardened", "filtered"])
def test_one_rank_that_refuses_is_enough_and_both_say_so(container):
    # One side may reach the other all the same; both would have to.
    outcomes = run_apart([Container(), container], RANK)
    assert_falls_back(outcomes, "cma refused: ")
    assert "cross-process copy was refused" in "".join(outcome.log for outcome in outcomes)


@pytest.mark.parametrize("container", [HARDENED, REFUSING["EPERM"]], ids=["hardened", "filtered"])
def test_without_staged_the_error_names_every_reason_on_all_ranks(container):
    code = (
        "import json, numpy as np, hixl_rma as rma\n"
        "try:\n"
        "    rma.Window.create(np.zeros(8))\n"
        "except rma.TransportError as error:\n"
        "    print(json.dumps(str(error.reasons or error)))\n"
    )
    for outcome in run_apart([container] * 2, code, HIXL_RMA_TRANSPORTS="shm,cma"):
        assert "refused" in outcome.report
        assert "staged" in outcome.report
        assert "not among the transports that are allowed" in outcome.report


@pytest.mark.parametrize("error", REFUSING)
def test_info_tells_that_cross_process_copy_is_refused_and_why(error):
    found = run_one(REFUSING[error], INFO).report
    assert found["usable"]
    states = {name: entry["state"] for name, entry in found["transports"].items()}
    assert (states["shm"], states["cma"], states["staged"]) == ("yes", "no", "yes")
    said = {"EPERM": "Operation not permitted", "ENOSYS": "Function not implemented"}[error]
    assert "cross-process copy was refused" in found["transports"]["cma"]["text"]
    assert said in found["transports"]["cma"]["text"]


# -- a small /dev/shm ---------------------------------------------------------------------------


def test_a_window_larger_than_dev_shm_is_allocated_and_holds_what_was_put(possible):
    for outcome in run_apart([possible(SMALL_SHM)] * 2, LARGE):
        assert outcome.report == {"chosen": "shm", "shm": 64 << 20}


def test_windows_of_both_kinds_work_beside_a_small_dev_shm(possible, tmp_path):
    assert_works(run_together(possible(SMALL_SHM), RANK, tmp_path))


def test_info_tells_how_small_dev_shm_is_and_that_windows_do_not_need_it(possible):
    found = run_one(possible(SMALL_SHM), INFO).report["limits"]["/dev/shm"]
    assert "64 MiB" in found["text"]
    assert "windows use memfd" in found["text"]


# -- namespaces of their own --------------------------------------------------------------------


def test_ranks_in_pid_namespaces_of_their_own_fall_back_to_staged(possible):
    assert_falls_back(run_apart([possible(OWN_PID)] * 2, RANK), "another PID namespace")


def test_ranks_in_one_pid_namespace_work(possible, tmp_path):
    assert_works(run_together(possible(OWN_PID), RANK, tmp_path))


def test_a_user_without_powers_in_a_user_namespace_makes_windows(possible, tmp_path):
    assert_works(run_together(possible(OWN_USER), RANK, tmp_path))


def test_ranks_in_user_namespaces_of_their_own_fall_back_to_staged(possible):
    assert_falls_back(run_apart([possible(OWN_USER)] * 2, RANK), "cross-process copy was refused")


def test_info_tells_of_namespaces_that_keep_ranks_apart(possible):
    found = run_one(possible(OWN_PID), INFO).report["limits"]["namespaces"]
    assert "PID" in found["text"]
    assert "staged" in found["text"]


def test_all_of_that_at_once_leaves_windows_working(possible):
    outcomes = run_apart([possible(EVERYTHING)] * 2, RANK)
    assert_falls_back(outcomes, "cma refused: ")


@pytest.mark.deadline(100)
def test_all_of_that_at_once_leaves_room_for_a_large_window(possible):
    for outcome in run_apart([possible(EVERYTHING)] * 2, LARGE):
        assert outcome.report == {"chosen": "shm", "shm": 64 << 20}
