# SPDX-License-Identifier: Apache-2.0
"""The configuration: argument > environment > default, and every value checked."""

import dataclasses
import fractions
import warnings

import numpy as np
import pytest

from hixl_rma import config
from hixl_rma.config import Config
from hixl_rma.errors import ArgumentError, ArgumentTypeError


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch):
    monkeypatch.setattr(config, "_warned", set())


def test_an_empty_environment_gives_the_defaults():
    assert Config.from_environment({}) == Config()


def test_the_environment_wins_over_the_default():
    environ = {
        "HIXL_RMA_TIMEOUT": "2.5",
        "HIXL_RMA_TRANSPORTS": "shm, cma",
        "HIXL_RMA_SPIN_US": "0",
        "HIXL_RMA_LOG": "Debug",
        "HIXL_RMA_NOTIFICATION_CAP": "4096",
    }
    assert Config.from_environment(environ) == Config(
        timeout=2.5, transports=("shm", "cma"), spin_us=0.0, log="debug", notification_cap=4096
    )


def test_an_argument_wins_over_the_environment():
    found = Config.from_environment(
        {"HIXL_RMA_TIMEOUT": "2", "HIXL_RMA_SPIN_US": "3"}, timeout=None
    )
    assert (found.timeout, found.spin_us) == (None, 3.0)


def test_a_variable_that_an_argument_overrides_is_not_read():
    assert Config.from_environment({"HIXL_RMA_TIMEOUT": "soon"}, timeout=1).timeout == 1.0


def test_an_empty_variable_counts_as_unset():
    assert Config.from_environment({"HIXL_RMA_TIMEOUT": " ", "HIXL_RMA_LOG": ""}) == Config()


def test_the_process_environment_is_read_when_none_is_given(monkeypatch):
    monkeypatch.setenv("HIXL_RMA_TIMEOUT", "7")
    assert Config.from_environment().timeout == 7.0


def test_a_time_out_of_none_waits_without_one():
    assert Config.from_environment({"HIXL_RMA_TIMEOUT": "None"}).timeout is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("10k", 10240), ("2M", 2 << 20), ("3GiB", 3 << 30), ("4kb", 4096), ("8B", 8)],
)
def test_a_number_of_bytes_takes_a_suffix(text, number):
    found = Config.from_environment({"HIXL_RMA_NOTIFICATION_CAP": text})
    assert found.notification_cap == number


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HIXL_RMA_TIMEOUT", "soon"),
        ("HIXL_RMA_TIMEOUT", "-1"),
        ("HIXL_RMA_TIMEOUT", "nan"),
        ("HIXL_RMA_TIMEOUT", "inf"),
        ("HIXL_RMA_TRANSPORTS", "ethernet"),
        ("HIXL_RMA_TRANSPORTS", ","),
        ("HIXL_RMA_SPIN_US", "-0.1"),
        ("HIXL_RMA_SPIN_US", "1 us"),
        ("HIXL_RMA_LOG", "verbose"),
        ("HIXL_RMA_NOTIFICATION_CAP", "0"),
        ("HIXL_RMA_NOTIFICATION_CAP", "-1"),
        ("HIXL_RMA_NOTIFICATION_CAP", "k"),
        ("HIXL_RMA_NOTIFICATION_CAP", "1.5G"),
        ("HIXL_RMA_NOTIFICATION_CAP", "9" * 30),
    ],
)
def test_a_wrong_value_names_the_variable_and_what_it_takes(name, text):
    (variable,) = (variable for variable in config.VARIABLES if variable.name == name)
    with pytest.raises(ArgumentError) as caught:
        Config.from_environment({name: text})
    assert f"{name}={text.strip()!r}" in str(caught.value)
    assert variable.takes in str(caught.value)


def test_a_transport_with_a_typing_error_is_guessed():
    with pytest.raises(ArgumentError, match="did you mean shm"):
        Config.from_environment({"HIXL_RMA_TRANSPORTS": "shmm"})


def test_a_transport_of_a_later_version_is_refused_with_those_there_are():
    with pytest.raises(
        ArgumentError, match=r"no transport 'verbs' in this version \(there are self"
    ):
        Config.from_environment({"HIXL_RMA_TRANSPORTS": "verbs"})


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("timeout", "1", ArgumentTypeError),
        ("timeout", True, ArgumentTypeError),
        ("timeout", -1, ArgumentError),
        ("transports", "cma", ArgumentTypeError),
        ("transports", (1,), ArgumentTypeError),
        ("transports", (), ArgumentError),
        ("transports", ("ib",), ArgumentError),
        ("spin_us", "fast", ArgumentTypeError),
        ("spin_us", float("nan"), ArgumentError),
        ("log", 10, ArgumentTypeError),
        ("log", "loud", ArgumentError),
        ("notification_cap", 1.5, ArgumentTypeError),
        ("notification_cap", True, ArgumentTypeError),
        ("notification_cap", 0, ArgumentError),
        ("notification_cap", 1 << 63, ArgumentError),
    ],
)
def test_a_wrong_argument_is_refused(field, value, error):
    with pytest.raises(error, match=field):
        Config(**{field: value})


def test_the_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().timeout = 1.0


def test_replacing_a_field_checks_it():
    assert dataclasses.replace(Config(), transports=["cma", "cma"]).transports == ("cma",)
    with pytest.raises(ArgumentError):
        dataclasses.replace(Config(), timeout=-1)


def test_an_unknown_variable_is_warned_about_once_with_a_guess():
    environ = {"HIXL_RMA_TIMEOUTS": "1"}
    with pytest.warns(RuntimeWarning, match="nothing reads it; did you mean HIXL_RMA_TIMEOUT"):
        Config.from_environment(environ)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config.from_environment(environ)


def test_a_variable_that_resembles_none_is_warned_about_without_a_guess():
    with pytest.warns(RuntimeWarning, match="HIXL_RMA_ZZZ9 is set, but nothing reads it$"):
        Config.from_environment({"HIXL_RMA_ZZZ9": "1"})


def test_variables_of_tests_and_of_the_local_job_are_not_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config.from_environment(
            {"HIXL_RMA_TEST_SLOW": "1", "HIXL_RMA_LOCAL_JOB": "a:0:1", "HOME": "/"}
        )


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0.0),
        (1.5, 1.5),
        (np.float32(0.5), 0.5),
        (np.int8(3), 3.0),
        (fractions.Fraction(1, 4), 0.25),
    ],
)
def test_a_time_out_is_none_or_a_number(value, seconds):
    assert config.validate_timeout(value) == seconds


@pytest.mark.parametrize("value", [True, False, np.True_, "1", b"1", 1j, [1], object()])
def test_a_time_out_of_another_type_is_refused(value):
    with pytest.raises(ArgumentTypeError, match="timeout takes a number >= 0 or None"):
        config.validate_timeout(value)


@pytest.mark.parametrize("value", [-1, -1e-9, float("nan"), float("inf"), -float("inf"), 10**400])
def test_a_time_out_that_is_no_length_of_time_is_refused(value):
    with pytest.raises(ArgumentError, match="timeout takes a finite number"):
        config.validate_timeout(value)


def test_an_infinite_time_out_is_told_to_be_none():
    with pytest.raises(ArgumentError, match="None waits without a time-out"):
        config.validate_timeout(float("inf"))


def test_the_description_has_each_variable_with_its_value_and_default():
    reports = {
        report.name: report for report in config.describe_environment({"HIXL_RMA_TIMEOUT": "3"})
    }
    assert set(reports) == {variable.name for variable in config.VARIABLES}
    assert (reports["HIXL_RMA_TIMEOUT"].value, reports["HIXL_RMA_TIMEOUT"].default) == (
        "3",
        "unset",
    )
    assert (reports["HIXL_RMA_SPIN_US"].value, reports["HIXL_RMA_SPIN_US"].default) == (
        None,
        "unset",
    )
    assert not any(report.problem for report in reports.values())


def test_the_description_tells_what_is_wrong_instead_of_raising():
    reports = config.describe_environment({"HIXL_RMA_LOG": "loud", "HIXL_RMA_LOGS": "info"})
    problems = {report.name: report.problem for report in reports if report.problem}
    assert "it takes one of debug" in problems["HIXL_RMA_LOG"]
    assert "did you mean HIXL_RMA_LOG?" in problems["HIXL_RMA_LOGS"]


def test_every_field_can_be_set_by_the_environment():
    fields = {field.name for field in dataclasses.fields(Config)}
    assert {variable.field for variable in config.VARIABLES if variable.field} == fields
