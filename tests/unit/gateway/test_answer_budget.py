"""What one answer may read: counted as it comes, and the lookup ended where it is too much."""

from typing import Any

import pytest

from dodona._core.protocol.steps import Target
from dodona.errors import LimitExceeded, Unavailable
from dodona.types import Timestamp
from dodona_gateway.core.answer_budget import within_budget
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Lookup, LookupReply, LookupVersions, RowVersion
from dodona_wire.messages.data import VersionedRows as Histories
from dodona_wire.messages.families import Reply
from unit.client.protocols import PATH, Clock, new_session, play, table

KEYS = [{"id": it} for it in range(10)]
TEXT = "x" * 1_000


def answer(target: Target, body: Any) -> Reply:
    if isinstance(body, LookupVersions):
        versions = (RowVersion(Timestamp(1), 3, (1, TEXT)),) * 3
        return Histories((versions, ()) * (len(body.keys) // 2))
    assert isinstance(body, Lookup)
    return LookupReply(((1, TEXT), None) * (len(body.keys) // 2))


@pytest.mark.parametrize(("is_versioned", "size_bytes"), [(False, 5_000), (True, 15_000)])
def test_an_answer_that_fits_is_left_alone_and_a_longer_one_is_refused(
    is_versioned: bool, size_bytes: int
) -> None:
    clock = Clock()
    session = new_session(clock, table())
    lookup: Any = session.lookup_versions if is_versioned else session.lookup_rows
    found = play(clock, within_budget(lookup(PATH, KEYS), size_bytes * 2), answer)
    assert found == play(clock, lookup(PATH, KEYS), answer)
    with pytest.raises(LimitExceeded, match="Ask for less at a time") as refused:
        play(clock, within_budget(lookup(PATH, KEYS), size_bytes - 1), answer)
    assert refused.value.attributes == {"bytes_max": size_bytes - 1}


def test_an_error_passes() -> None:
    clock = Clock()
    lookup = new_session(clock, table()).lookup_rows(PATH, KEYS)
    lost = Failure("unavailable", "no answer")
    with pytest.raises(Unavailable):
        play(clock, within_budget(lookup, 1), lambda target, body: table() if target < 0 else lost)
