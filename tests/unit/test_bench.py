# SPDX-License-Identifier: Apache-2.0
"""The benchmark's judgement: goals, the best of several MPIs, the table, the exit status."""

import dataclasses
import json
import math
import platform
import time
from contextlib import contextmanager

import pytest

from hixl_rma import __main__
from hixl_rma.bench import catalogue, command, crowd, goals, launch, machine, peers, report, timing
from hixl_rma.bench.catalogue import Row
from hixl_rma.bench.goals import Figure, Verdict, at_least, at_most, judge
from hixl_rma.bench.results import Measurement, failed, merge, percentile
from hixl_rma.bench.scenarios import SCENARIOS
from hixl_rma.bench.timing import Effort, Side, Stalled, take_turns

ROW = Row("put", "put + flush", "allocated", 8, "asleep", at_most(0.4) & at_least(2, Figure.MPI))


def measured(row=ROW, library="Open MPI 5", ours=(0.2,), mpi=(1.0,), limit=(), **fields):
    turns = {"ours": list(ours), "mpi": list(mpi), "limit": list(limit)}
    turns = {side: values for side, values in turns.items() if values}
    return Measurement(row.key, library, turns, **fields)


# ------------------------------------------------------------------------------------------- goals


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({Figure.MEDIAN: 0.4, Figure.MPI: 2.0}, Verdict.MET),
        ({Figure.MEDIAN: 0.41, Figure.MPI: 2.0}, Verdict.MISSED),
        ({Figure.MEDIAN: 0.4, Figure.MPI: 1.99}, Verdict.MISSED),
        ({Figure.MEDIAN: 0.4, Figure.MPI: math.inf}, Verdict.MET),
        ({Figure.MEDIAN: 0.4, Figure.MPI: math.nan}, Verdict.MISSED),
        ({Figure.MEDIAN: 0.4}, Verdict.NOT_MEASURED),
        ({}, Verdict.NOT_MEASURED),
    ],
)
def test_a_goal_is_met_only_when_each_of_its_conditions_holds(figures, verdict):
    assert judge(ROW.goal, figures) is verdict


def test_a_condition_that_fails_decides_whatever_was_not_measured():
    assert judge(ROW.goal, {Figure.MEDIAN: 0.5, Figure.MPI: None}) is Verdict.MISSED


@pytest.mark.parametrize(
    ("of_mpi", "of_limit", "verdict"),
    [
        (1.30, 0.95, Verdict.MET),
        (1.15, 1.05, Verdict.AT_LIMIT),  # the limit is 1.10 times as fast as MPI
        (1.25, 0.95, Verdict.MISSED),  # the limit is 1.32 times as fast as MPI
        (1.15, 0.94, Verdict.MISSED),
        (1.15, None, Verdict.MISSED),
    ],
)
def test_a_row_is_at_the_limit_only_where_the_limit_itself_does_not_beat_mpi_by_what_is_asked(
    of_mpi, of_limit, verdict
):
    goal = at_least(0.95, Figure.LIMIT) & at_least(1.3, Figure.MPI)
    assert judge(goal, {Figure.MPI: of_mpi, Figure.LIMIT: of_limit}) is verdict


def test_a_row_whose_goal_names_no_limit_is_never_at_it():
    assert judge(ROW.goal, {Figure.MEDIAN: 0.3, Figure.MPI: 1, Figure.LIMIT: 1}) is Verdict.MISSED


def test_a_row_without_a_goal_has_no_verdict():
    assert judge(None, {Figure.MEDIAN: 1e9}) is Verdict.NO_GOAL


def test_a_goal_reads_as_people_write_it():
    assert ROW.goal_text == "<= 0.4 us, >= 2 x MPI"
    assert (at_most(5000, Figure.P99) & at_least(0.95, Figure.LIMIT)).text("us") == (
        "p99 <= 5000 us, >= 0.95 of limit"
    )


# --------------------------------------------------------------------------------------- catalogue


def test_every_row_has_a_name_of_its_own():
    keys = [row.key for row in catalogue.rows()]
    assert len(keys) == len(set(keys))


def test_every_row_can_be_measured_or_says_why_not():
    for row in catalogue.rows():
        known = SCENARIOS if row.ranks == catalogue.PAIR else crowd.SCENARIOS
        assert bool(row.absent) != (row.scenario in known), row.key


def test_no_row_is_larger_than_the_largest_operation_asked_for():
    rows = catalogue.rows(1 << 20)
    assert max(row.size for row in rows) == 1 << 20
    assert not [row for row in rows if row.scenario == "blocks"], "1024 blocks are 16 MiB"


def test_patterns_choose_rows_by_any_part_of_their_key():
    rows = catalogue.rows()
    assert catalogue.select(rows, []) == rows
    chosen = catalogue.select(rows, ["fence", "put + flush/*/8 B/spinning"])
    assert [row.key for row in chosen] == [
        "put + flush/allocated/8 B/spinning",
        "put + flush/created/8 B/spinning",
        "fence/allocated",
        "16 ranks: fence/allocated",
    ]
    assert not catalogue.select(rows, ["no such row"])


# ----------------------------------------------------------------------------------------- merging


def test_ratios_are_taken_turn_by_turn():
    # Of the medians it would be 2 / 2; in each turn but one ours took half as long.
    line = merge(ROW, [measured(ours=[1, 2, 50], mpi=[2, 4, 1])])
    assert line.ratio_mpi == 2
    assert (line.ours, line.mpi) == (2, 2)


def test_the_best_mpi_is_the_one_that_did_best_against_us_in_its_own_job():
    # The second job ran while the machine was slow: its MPI took longer, but less so than ours.
    line = merge(
        ROW,
        [
            measured(library="Open MPI 5", ours=[0.2], mpi=[0.8]),
            measured(library="MPICH 5", ours=[0.6], mpi=[0.9]),
        ],
    )
    assert (line.mpi_name, line.mpi, line.ratio_mpi) == ("MPICH 5", 0.9, pytest.approx(1.5))
    assert line.ours == pytest.approx(0.4)
    assert line.verdict is Verdict.MISSED


def test_shares_of_the_limit_come_from_the_turns_of_all_jobs():
    row = Row("put", "put", goal=at_least(0.95, Figure.LIMIT))
    jobs = [
        measured(row, "A", ours=[1.0], limit=[0.9]),
        measured(row, "B", ours=[2.0, 2.0], limit=[2.0, 2.0]),
    ]
    assert merge(row, jobs).ratio_limit == 1.0
    assert merge(row, jobs[:1]).verdict is Verdict.MISSED


def test_an_mpi_that_stalls_counts_as_slower_than_one_that_does_not():
    stalls = measured(library="A", mpi=(), stalled=True)
    line = merge(ROW, [stalls, measured(library="B", mpi=[0.6])])
    assert (line.mpi_name, line.ratio_mpi) == ("B", pytest.approx(3))
    line = merge(ROW, [stalls])
    assert (line.ratio_mpi, line.mpi, line.verdict) == (math.inf, None, Verdict.MET)


def test_a_row_that_could_not_be_measured_says_why_and_is_not_met():
    line = merge(ROW, [Measurement(ROW.key, "A", note="OSError: refused")])
    assert (line.verdict, line.note) == (Verdict.NOT_MEASURED, "OSError: refused")
    assert failed([line]) == [line]


def test_measurements_of_other_rows_are_left_aside():
    other = Row("get", "get + flush", "allocated", 8, "asleep")
    assert merge(ROW, [measured(other)]).ours is None


def test_the_99th_percentile_is_that_of_single_operations():
    line = merge(ROW, [measured(singles={"ours": list(range(1, 201)), "mpi": [7]})])
    assert (line.p99, line.mpi_p99) == (198, 7)
    assert percentile([3, 1, 2], 0.99) == 3


def test_of_a_row_measured_again_the_second_measurement_counts():
    first, second = measured(ours=[5.0]), measured(ours=[0.3], again=True)
    last = command._last([first, measured(library="B"), second])
    line = merge(ROW, last)
    assert (line.verdict, line.again, line.turns) == (Verdict.MET, True, 2)
    assert "met, 2nd try" in report.table([line])[1]


# ------------------------------------------------------------------- report and exit status


def options(*words):
    return __main__._parser().parse_args(["bench", *words])


@pytest.fixture
def finish(monkeypatch, tmp_path, capsys):
    """Report measurements of rows: finish(rows, measurements) -> (status, output, JSON)."""
    monkeypatch.setattr(machine, "facts", lambda: {"processor": "P", "processors": 2, "kernel": 6})
    monkeypatch.setattr(machine, "load", lambda: "0 0 0")

    def run(rows, found, problems=()):
        path = tmp_path / "deep" / "bench.json"
        status = command._finish(options("--json", str(path)), rows, found, "0 0 0", list(problems))
        return status, capsys.readouterr().out, json.loads(path.read_text())

    return run


def test_the_exit_status_is_0_when_every_goal_is_met(finish):
    status, output, written = finish([ROW], [measured()])
    assert (status, written["met"]) == (0, True)
    assert "1 met, 0 at the limit, 0 missed, 0 not measured" in output


def test_a_row_beyond_its_goal_makes_the_exit_status_1_and_is_named(finish):
    status, output, written = finish([ROW], [measured(ours=[0.41])])
    assert (status, written["met"]) == (1, False)
    assert f"missed: {ROW.key}" in output
    assert written["rows"][0]["verdict"] == "missed"


def test_a_row_at_the_limit_does_not_change_the_exit_status_and_is_counted(finish):
    goal = at_least(0.95, Figure.LIMIT) & at_least(1.3, Figure.MPI)
    row = dataclasses.replace(ROW, goal=goal)
    status, output, written = finish([row], [measured(row, ours=[10], mpi=[11], limit=[10])])
    assert (status, written["rows"][0]["verdict"]) == (0, "at the limit")
    assert "0 met, 1 at the limit, 0 missed" in output


def test_a_row_with_a_goal_that_was_not_measured_makes_the_exit_status_1(finish):
    status, output, _ = finish([ROW], [])
    assert status == 1
    assert f"not measured: {ROW.key}" in output


def test_a_job_that_failed_makes_the_exit_status_1_and_is_reported(finish):
    status, output, written = finish([ROW], [measured()], ["the ranks ended with status 3"])
    assert status == 1
    assert "problem: the ranks ended with status 3" in output
    assert written["problems"] == ["the ranks ended with status 3"]


def test_what_this_version_cannot_do_is_listed_and_does_not_count(finish):
    absent = Row("", "tcp: put", size=8, absent="no tcp", goal=at_most(1))
    status, output, _ = finish([ROW, absent], [measured()])
    assert status == 0
    assert "not measured: no tcp" in output


def test_a_stalling_mpi_is_called_so_in_the_table_and_in_the_json(finish):
    _, output, written = finish([ROW], [measured(mpi=(), stalled=True)])
    assert "stalls" in output
    row = written["rows"][0]
    assert (row["mpi_stalls"], row["times_as_fast_as_mpi"]) == (True, None)


def test_facts_of_the_machine_are_read(tmp_path):
    for name, text in {
        "proc/cpuinfo": "model name\t: Some CPU\n",
        "proc/meminfo": "MemTotal:       2048000 kB\n",
        "proc/loadavg": "0.10 0.20 0.30 1/99 1234\n",
        "sys/devices/system/node/node0/x": "",
        "sys/devices/system/node/node1/x": "",
        "sys/devices/system/cpu/cpu0/cache/index0/level": "1\n",
        "sys/devices/system/cpu/cpu0/cache/index0/type": "Data\n",
        "sys/devices/system/cpu/cpu0/cache/index0/size": "48K\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = machine.facts(tmp_path)
    assert (found["processor"], found["NUMA nodes"]) == ("Some CPU", 2)
    assert found["caches"] == {"L1 data": "48K"}
    assert (found["memory MiB"], found["huge pages"]) == (2000, "madvise")
    assert found["governor"] == "not visible"
    assert machine.load(tmp_path) == "0.10 0.20 0.30"


def texts(facts):
    for value in facts.values():
        yield from texts(value) if isinstance(value, dict) else [str(value)]


def test_facts_of_the_machine_hold_no_name_or_path_of_it():
    found = list(texts(machine.facts()))
    assert len(found) > 10
    assert not [text for text in found if text == platform.node() or text.startswith("/")]


# ------------------------------------------------------------------------------------ the turns

QUICK = Effort(seconds=0.01, fewest=4, most=6, turn_us=50)


def test_every_side_runs_in_every_turn_and_none_always_goes_first():
    order = []
    sides = {name: Side(lambda times, name=name: order.append((name, times))) for name in "abc"}
    samples = take_turns(sides, Effort(seconds=60, fewest=3, most=3, turn_us=0))
    assert {name: len(turns) for name, turns in samples.turns.items()} == dict.fromkeys("abc", 3)
    assert "".join(name for name, _ in order[-9:]) == "abcbcacab"


def test_turns_go_round_the_places_where_the_same_sides_work():
    seen = []
    places = [{"ours": Side(lambda times, p=p: seen.extend([p] * times))} for p in range(3)]
    effort = Effort(seconds=60, fewest=6, most=6, turn_us=0)
    samples = take_turns(places[0], effort, places[1:])
    assert len(samples.turns["ours"]) == 6
    assert seen[-6:] == [0, 1, 2, 0, 1, 2]


def test_a_side_that_stalls_is_left_out_and_the_others_go_on():
    calls = []

    @contextmanager
    def stalls_later(times):
        yield
        calls.append(times)
        if len(calls) > 6:
            raise Stalled

    sides = {"ours": Side(lambda times: None), "mpi": Side(lambda times: None, stalls_later)}
    samples = take_turns(sides, QUICK)
    assert samples.stalled == {"mpi"}
    assert "mpi" not in samples.turns
    assert len(samples.turns["ours"]) >= QUICK.fewest
    assert len(calls) == 7


def test_the_time_of_a_batch_is_that_of_one_operation():
    side = Side(lambda times: time.sleep(0.002 * times))
    assert 2000 <= timing.batch_us(side, 5) < 10_000
    assert 1000 <= timing.batch_us(Side(side.loop, share=0.5), 5) < 5000


def test_a_second_try_takes_more_turns():
    more = QUICK.more()
    assert more.seconds > QUICK.seconds
    assert more.fewest > 2 * QUICK.fewest
    assert more.most > QUICK.most


# ------------------------------------------------------------------------------- the command


def test_the_list_names_each_row_with_its_goal(capsys):
    assert __main__.main(["bench", "--list", "--rows", "fence"]) == 0
    name, goal = capsys.readouterr().out.splitlines()[0].split(" ", 1)
    assert (name, goal.strip()) == ("fence/allocated", "<= 1 us, >= 1 x MPI")


def test_a_pattern_that_no_row_has_is_refused(capsys):
    assert __main__.main(["bench", "--rows", "nothing"]) == 2
    assert "--list" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["7", "x", "1.5M", "-8", ""])
def test_a_largest_size_that_is_none_is_refused(size, capsys):
    with pytest.raises(SystemExit) as ended:
        options("--max", size)
    assert ended.value.code == 2
    assert "bytes" in capsys.readouterr().err


def test_sizes_are_read_with_their_units():
    assert options("--max", "64K").max == 65536
    assert options("--max", "8").max == 8


def test_an_environment_without_mpirun_is_told_what_to_install(tmp_path):
    with pytest.raises(FileNotFoundError, match="pip install"):
        launch.MpiLauncher.beside(tmp_path / "python")


def test_rows_for_more_ranks_than_there_are_are_listed_and_do_not_count(monkeypatch, capsys):
    rows = catalogue.select(catalogue.rows(), ["16 ranks: fence"])
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert command._finish(options(), rows, [], "", []) == 0
    assert "takes 16 ranks" in capsys.readouterr().out


def test_a_job_that_takes_too_long_is_ended_and_what_it_measured_counts(tmp_path):
    script = tmp_path / "mpirun"
    row = json.dumps({"key": "k", "library": "L"})
    script.write_text(
        f'#!/bin/sh\nfor file; do :; done\necho \'{row}\' > "$file"\nprintf \'{{"ke\' >> "$file"\n'
        "sleep 60\n"
    )
    script.chmod(0o755)
    job = launch.Job(launch.MpiLauncher("python", (str(script),), {}), 2, [], 1.0)
    start = time.monotonic()
    assert job.run() == [Measurement("k", "L")]
    assert time.monotonic() - start < 30
    assert job.problem == "the ranks were not finished after 1 s"


@pytest.fixture
def interpreter(tmp_path, monkeypatch):
    """Stand in for the Python of the peers: interpreter(shell lines) -> path."""
    monkeypatch.setattr(peers, "_BOUND_S", 1.0)

    def make(lines):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)
        return path

    return make


def test_a_peer_that_is_absent_fails_or_hangs_is_reported_so(interpreter, tmp_path, capsys):
    absent = peers.measure(tmp_path / "nothing", quick=True)
    broken = peers.measure(interpreter("echo 'no module nixl' >&2; exit 1"), quick=True)
    hanging = peers.measure(interpreter("sleep 60"), quick=True)
    for rows, word in ((absent, "absent"), (broken, "no module nixl"), (hanging, "not finished")):
        assert [row.peer for row in rows] == list(peers.SETTINGS)
        assert all(word in row.note for row in rows), rows
        peers.print_table(rows)
        assert capsys.readouterr().out.count(word) == len(rows)


def test_what_a_peer_measured_stands_beside_ours(interpreter, capsys):
    row = {"name": "write", "bytes": 8, "ours": 0.2, "theirs": 3.0, "limit": 0.4}
    rows = peers.measure(
        interpreter(f"echo '{json.dumps({**row, 'times_as_fast': 15})}'"), quick=True
    )
    peers.print_table(rows)
    assert "15.0 x as fast" in capsys.readouterr().out


def test_goals_of_a_figure_in_percent_say_so():
    assert goals.at_most(10).text("%") == "<= 10 %"
