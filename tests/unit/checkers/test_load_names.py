"""The names under which the publication of a load was sent, as the history has them."""

import pytest

from dodona._core.protocol.steps import Calls
from dodona.types import CellId, LoadId, Revision, TabletId, TransactionId
from dodona_loadtest.histories.history import History
from dodona_loadtest.histories.loads import _note_names
from dodona_wire.messages.data import (
    CommitOne,
    ConditionalCommit,
    Prepare,
    Publication,
    TabletModifications,
)

NAME = TransactionId(7)
PART = TabletModifications(TabletId(1), Revision(1), (), publication=Publication(LoadId(5), (1,)))


@pytest.mark.parametrize("is_conditional", [False, True])
@pytest.mark.parametrize(
    "request_", [CommitOne(NAME, (PART,)), Prepare(NAME, (CellId(0), CellId(1)), (PART,))]
)
def test_a_publication_is_noted_under_its_name(
    request_: CommitOne | Prepare, is_conditional: bool
) -> None:
    record = History().begin("x", 0)
    sent = ConditionalCommit(request_, ()) if is_conditional else request_
    for _ in range(2):
        _note_names(record, Calls(((CellId(0), sent),)))
    assert record.names == [NAME]
