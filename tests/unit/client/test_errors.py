"""The error tree: one table for the wire, REST and the caller's next step."""

import pytest

import dodona
from dodona.errors import ERRORS_BY_KIND, DodonaError, TransactionConflict, error_from_wire


def test_kinds_and_codes_are_unique() -> None:
    """One kind has the code of another only if it is a special case of that one."""
    errors = list(ERRORS_BY_KIND.values())
    for error in errors:
        sharing = [it for it in errors if it.code == error.code]
        assert all(issubclass(it, error) or issubclass(error, it) for it in sharing)
    assert set(ERRORS_BY_KIND) == {error.kind for error in ERRORS_BY_KIND.values()}


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_every_error_survives_the_wire(kind: str) -> None:
    error = error_from_wire(kind, "what happened", {"table": "//t"})
    assert type(error) is ERRORS_BY_KIND[kind]
    assert (error.message, error.attributes) == ("what happened", {"table": "//t"})
    assert str(error) == "what happened (table='//t')"


@pytest.mark.parametrize("kind", sorted(set(ERRORS_BY_KIND) - {"internal"}))
def test_every_error_is_public(kind: str) -> None:
    error = ERRORS_BY_KIND[kind]
    assert getattr(dodona, error.__name__) is error


def test_a_kind_of_a_newer_server_is_the_base_class() -> None:
    assert type(error_from_wire("from_the_future", "what", {})) is DodonaError


def test_known_codes_are_those_of_ytsaurus() -> None:
    assert TransactionConflict.code == 1700
    assert TransactionConflict("no").is_retryable
    assert not dodona.InvalidRequest("no").is_retryable
    assert not dodona.CommitOutcomeUnknown("no").is_retryable


def test_every_public_name_is_there() -> None:
    assert [name for name in dodona.__all__ if not hasattr(dodona, name)] == []
    assert len(set(dodona.__all__)) == len(dodona.__all__)
