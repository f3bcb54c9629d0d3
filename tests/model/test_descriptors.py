"""What a shortage of descriptors is told as, wherever it shows."""

import errno

import pytest

from tidegate.errors import StorageFailed, TidegateError, TooManyOpenFiles, UserCodeFailed
from tidegate.model.descriptors import shortage
from tidegate.slot.driver_link import as_ours
from tidegate.storage.store import failed

FULL = OSError(errno.EMFILE, "Too many open files", "/etc/hosts")


def within(cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except Exception as error:
            raise LookupError("could not be looked up") from error
    except LookupError as outer:
        return outer


@pytest.mark.parametrize("error", [FULL, within(FULL), within(within(FULL))])
def test_a_shortage_is_seen_however_deep_it_lies(error: Exception) -> None:
    short = shortage(error)
    assert short is not None and "/etc/hosts" in short.what and "this process" in short.what
    assert "ulimit" in short.remedy
    assert shortage(within(short)) is short


def test_a_shortage_of_the_machine_is_told_as_that() -> None:
    short = shortage(OSError(errno.ENFILE, "File table overflow"))
    assert short is not None and "this machine" in short.what


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OSError("odd"), ValueError()])
def test_anything_else_is_none(error: Exception) -> None:
    assert shortage(error) is None and shortage(within(error)) is None


def test_an_error_may_be_its_own_cause() -> None:
    error = ValueError()
    error.__cause__ = error
    assert shortage(error) is None and shortage(within(error)) is None


def test_stores_and_functions_tell_what_to_do() -> None:
    told: list[TidegateError] = [failed("Cannot read", "s3://b/f", FULL), as_ours(FULL, "map")]
    assert [type(each) for each in told] == [TooManyOpenFiles, UserCodeFailed]
    assert all("ulimit" in each.remedy for each in told)
    assert type(failed("Cannot read", "s3://b/f", OSError("odd"))) is StorageFailed
