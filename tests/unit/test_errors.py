# SPDX-License-Identifier: Apache-2.0
"""The errors: two bases, one constructor, texts that say where and why."""

import copy
import errno
import pickle

import pytest

from hixl_rma import errors

BUILTINS = {
    "InvalidArgument": ValueError,
    "InvalidType": TypeError,
    "ReadOnly": BufferError,
    "OutOfRange": IndexError,
    "NotRegistered": ValueError,
    "AccessDenied": PermissionError,
    "Stale": LookupError,
    "WrongEpoch": RuntimeError,
    "Unsupported": NotImplementedError,
    "ResourceExhausted": MemoryError,
    "Busy": RuntimeError,
    "Timeout": TimeoutError,
    "NotifyTimeout": TimeoutError,
    "Unavailable": OSError,
    "NotConnected": ConnectionError,
    "TransferFailed": OSError,
    "PeerLost": ConnectionError,
    "Canceled": Exception,
    "Closed": ValueError,
    "Forked": RuntimeError,
    "ProtocolMismatch": ConnectionError,
    "AuthFailed": PermissionError,
    "Bootstrap": RuntimeError,
    "Internal": RuntimeError,
}

CODES = list(BUILTINS)
every_class = pytest.mark.parametrize("code", CODES)


def full(code):
    return errors.by_code[code](
        "it failed", operation="put", transport="cma", peer_rank=3, errno=errno.EPERM
    )


def test_there_is_one_class_for_each_status_code():
    assert sorted(errors.by_code) == sorted(CODES)
    assert len(set(errors.by_code.values())) == len(CODES)


@every_class
def test_a_class_is_an_rma_error_and_the_builtin_that_users_catch(code):
    cls = errors.by_code[code]
    assert issubclass(cls, errors.RmaError)
    assert issubclass(cls, BUILTINS[code])
    assert cls.code == code


@every_class
def test_the_constructor_keeps_every_fact(code):
    error = full(code)
    assert (error.code, error.detail, error.operation, error.transport) == (
        code,
        "it failed",
        "put",
        "cma",
    )
    assert (error.peer_rank, error.errno) == (3, errno.EPERM)


@every_class
def test_facts_that_are_not_given_are_empty(code):
    error = errors.by_code[code]("it failed")
    assert (error.operation, error.transport, error.peer_rank, error.errno) == ("", "", None, None)
    assert str(error) == "it failed"
    assert repr(error) == f"{type(error).__name__}('it failed')"


@every_class
def test_the_text_names_operation_rank_transport_and_system_error(code):
    assert str(full(code)) == (
        "put: it failed (rank 3, transport cma, EPERM: Operation not permitted)"
    )


@every_class
def test_the_repr_makes_the_same_error_again(code):
    again = eval(repr(full(code)), vars(errors))
    assert repr(again) == repr(full(code))


@every_class
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_an_error_survives_copy_and_pickle(code, again):
    error = full(code)
    error.hint = "an attribute of the user"
    twin = again(error)
    assert type(twin) is type(error)
    assert (str(twin), repr(twin), twin.hint) == (str(error), repr(error), error.hint)


def test_rank_zero_is_named():
    assert str(errors.PeerLostError("gone", peer_rank=0)) == "gone (rank 0)"


def test_a_number_that_is_no_errno_is_shown_as_it_is():
    assert "errno 9999" in str(errors.TransferError("odd", errno=9999))


def test_a_transport_error_tells_the_reason_of_each_transport():
    error = errors.TransportError(
        "no transport reaches it", peer_rank=1, reasons={"shm": "another host", "cma": "EPERM"}
    )
    assert str(error).splitlines() == [
        "no transport reaches it (rank 1)",
        "  shm: another host",
        "  cma: EPERM",
    ]
    assert pickle.loads(pickle.dumps(error)).reasons == error.reasons


def test_a_transport_error_has_no_reasons_unless_given():
    assert errors.TransportError("nothing").reasons == {}


def test_a_notification_time_out_is_a_time_out():
    assert issubclass(errors.NotifyTimeoutError, errors.RmaTimeoutError)


def test_a_subclass_may_carry_its_own_code_and_still_be_pickled():
    class LeaseError(errors.StaleError):
        code = "Lease"

    assert LeaseError("over").code == "Lease"
    assert copy.copy(LeaseError("over")).code == "Lease"
