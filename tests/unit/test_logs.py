# SPDX-License-Identifier: Apache-2.0
"""Logging: silent by default, switched on by a variable, native lines in the same logger."""

import logging
import sys

import pytest

from hixl_rma import logs


@pytest.fixture(autouse=True)
def untouched_logger(monkeypatch):
    handlers, level = list(logs.logger.handlers), logs.logger.level
    for handler in handlers:
        if not isinstance(handler, logging.NullHandler):
            logs.logger.removeHandler(handler)
    logs.logger.setLevel(logging.NOTSET)
    monkeypatch.setattr(logs, "_handler", None)
    yield
    logs.logger.handlers[:] = handlers
    logs.logger.setLevel(level)


def test_the_logger_is_silent_until_somebody_listens(capfd):
    logs.logger.warning("nobody hears it")
    assert logs.logger.name == "hixl_rma"
    assert any(isinstance(handler, logging.NullHandler) for handler in logs.logger.handlers)
    assert capfd.readouterr().err == ""


def test_without_the_variable_no_handler_is_installed():
    before = list(logs.logger.handlers)
    logs.setup({})
    assert logs.logger.handlers == before


@pytest.mark.parametrize(
    ("level", "heard"),
    [("debug", ["d", "i", "w"]), ("info", ["i", "w"]), ("WARNING", ["w"])],
)
def test_the_variable_prints_lines_from_its_level_on(capsys, level, heard):
    logs.setup({"HIXL_RMA_LOG": level})
    logs.logger.debug("d")
    logs.logger.info("i")
    logs.logger.warning("w")
    lines = capsys.readouterr().err.splitlines()
    assert [line.rsplit(": ", 1)[1] for line in lines] == heard


def test_a_second_set_up_installs_no_second_handler(capsys):
    logs.setup({"HIXL_RMA_LOG": "warning"})
    logs.setup({"HIXL_RMA_LOG": "info"})
    logs.logger.info("once")
    assert capsys.readouterr().err.count("once") == 1


def test_a_level_that_is_none_is_a_warning_because_import_has_to_work():
    with pytest.warns(RuntimeWarning, match="HIXL_RMA_LOG='loud'.*debug, info, warning"):
        logs.setup({"HIXL_RMA_LOG": "loud"})


def test_the_handler_writes_to_the_stderr_of_the_moment(capsys, monkeypatch):
    logs.setup({"HIXL_RMA_LOG": "info"})
    monkeypatch.setattr(sys, "stderr", None)
    logs.logger.info("into nothing")
    monkeypatch.undo()
    assert capsys.readouterr().err == ""


def test_native_lines_arrive_with_their_level_and_unformatted_text(caplog):
    with caplog.at_level(logging.DEBUG, logger="hixl_rma"):
        logs.emit_native([("debug", "a %s b"), ("WARNING", "w"), ("error", "e"), ("odd", "o")])
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("hixl_rma.native", "DEBUG", "a %s b"),
        ("hixl_rma.native", "WARNING", "w"),
        ("hixl_rma.native", "ERROR", "e"),
        ("hixl_rma.native", "INFO", "o"),
    ]


@pytest.mark.parametrize(
    ("level", "lowest"),
    [
        (1, "debug"),
        (logging.DEBUG, "debug"),
        (logging.INFO, "info"),
        (25, "warning"),
        (logging.ERROR, "error"),
        (logging.CRITICAL, "error"),
    ],
)
def test_the_native_level_is_the_lowest_that_anyone_hears(level, lowest):
    logs.logger.setLevel(level)
    assert logs.native_level() == lowest
