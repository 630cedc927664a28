"""Names that an iterator gives: a second attempt under a new schema still has them."""

from collections.abc import Callable
from typing import Any

import pytest

from dodona._core.protocol.steps import MASTER, Target
from dodona._core.session import Session
from dodona.errors import InvalidRequest
from dodona.schema import Column
from dodona.types import Timestamp
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import Lookup, LookupVersions, Scan, ScanArrow
from dodona_wire.messages.families import Reply, Request
from unit.client.protocols import COLUMNS, PATH, Clock, begin, new_session, play, table

ALTERED = (*COLUMNS, Column("more", "int64", lock="more"))
REFUSED = Failure("invalid_request", "the schema is another one")
AT = Timestamp(9)
ONE = [{"id": 1}]
READS: dict[str, Callable[[Session, Any], Any]] = {
    "lookup": lambda it, names: it.lookup_rows(PATH, ONE, names, timestamp=AT),
    "versions": lambda it, names: it.lookup_versions(PATH, ONE, names, timestamp=AT),
    "select": lambda it, names: it.select(PATH, None, [2], names, AT),
    "first rows": lambda it, names: it.first_rows(PATH, 1, 100, None, [2], names, AT),
    "arrow": lambda it, names: it.read_arrow(PATH, None, [2], names, AT),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_asks_for_the_same_columns_after_a_refusal(name: str) -> None:
    clock = Clock()
    session = new_session(clock, table())
    masks: list[object] = []

    def answer(target: Target, body: Request) -> Reply:
        if target == MASTER:
            return table(columns=ALTERED)
        assert isinstance(body, Lookup | LookupVersions | Scan | ScanArrow)
        masks.append(body.column_mask)
        return REFUSED

    with pytest.raises(InvalidRequest):
        play(clock, READS[name](session, iter(["id", "value"])), answer)
    assert masks[1:] == masks[:1], "value is the first column in both schemas"
    assert masks[0] == 1


def test_a_lock_locks_the_same_groups_under_a_new_schema() -> None:
    clock = Clock()
    session = new_session(clock, table())
    transaction = begin(clock, session)
    names: Any = iter(["more"])

    def answer(target: Target, body: Request) -> Reply:
        assert target == MASTER
        return table(columns=ALTERED)

    play(clock, session.lock_rows(transaction, PATH, ONE, names), answer)
    (locks,) = transaction.tables[PATH].locks.values()
    assert locks == {"shared_strong": 2}
