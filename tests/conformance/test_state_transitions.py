"""Commands that meet tablets on their way from one state to another.

Owns: the matrix of pairs of commands, the second given while the first is under way. For that the
cells stand still: what they are to do is decided, and not done yet.
"""

import pytest

from conformance.backends import Backend, Simulated
from conformance.selections import UNDER_VIRTUAL_TIME
from conformance.tables import PLAIN, MakeTable, refused
from dodona.client import Client
from dodona.errors import InvalidTabletState
from dodona_wire.messages.catalog import (
    FreezeTable,
    MountTable,
    Table,
    TableLifeRequest,
    UnfreezeTable,
    UnmountTable,
)

pytestmark = UNDER_VIRTUAL_TIME


def _request(command: str, path: str) -> TableLifeRequest:
    requests: dict[str, TableLifeRequest] = {
        "mount": MountTable(path),
        "mount frozen": MountTable(path, is_frozen=True),
        "unmount": UnmountTable(path),
        "freeze": FreezeTable(path),
        "unfreeze": UnfreezeTable(path),
    }
    return requests[command]


COMMANDS = ("mount", "mount frozen", "unmount", "freeze", "unfreeze")
ON_THE_WAY = {
    ("unmounted", "mount"): "mounting",
    ("unmounted", "mount frozen"): "frozen_mounting",
    ("mounted", "unmount"): "unmounting",
    ("mounted", "freeze"): "freezing",
    ("frozen", "unmount"): "unmounting",
    ("frozen", "unfreeze"): "unfreezing",
}
TAKEN = {
    "mounting": {"mount"},
    "frozen_mounting": {"mount frozen", "freeze"},
    "unmounting": {"unmount"},
    "freezing": {"freeze", "mount frozen"},
    "unfreezing": {"unfreeze", "mount"},
}
"""Commands toward where the tablet is going; all others are refused."""
ENDS = {
    "mounting": "mounted",
    "frozen_mounting": "frozen",
    "unmounting": "unmounted",
    "freezing": "frozen",
    "unfreezing": "mounted",
}


@pytest.mark.parametrize(("state", "first"), ON_THE_WAY)
def test_a_tablet_in_transition_accepts_only_commands_toward_its_target_state(
    backend: Backend, db: Client, make_table: MakeTable, state: str, first: str
) -> None:
    assert isinstance(backend, Simulated)
    path = make_table(PLAIN, mount=False)
    if state != "unmounted":
        db.mount_table(path, freeze=state == "frozen")
    (tablet,) = db.get_table(path).tablets

    def tell(command: str) -> str:
        context = db._session._context
        answer = db._run(context.ask_master(_request(command, path), Table))
        return answer.tablets[0].state

    passing = ON_THE_WAY[state, first]
    with backend.cells_stand_still():
        assert tell(first) == passing
        for second in COMMANDS:
            if second in TAKEN[passing]:
                assert tell(second) == passing
                continue
            words = f'Cannot {second.split()[0]} tablet {tablet.tablet} in "{passing}" state'
            with refused(InvalidTabletState, words, is_retryable=False):
                tell(second)
    backend.let_pass(5_000)
    assert db.get_table(path).tablets[0].state == ENDS[passing]


def test_reads_go_on_while_a_table_is_frozen_and_unfrozen(
    backend: Backend, db: Client, make_table: MakeTable
) -> None:
    path = make_table()
    db.insert_rows(path, [{"k": 1, "v": 1}])
    catalog = db._session.catalog
    for change in (catalog.freeze_table, catalog.unfreeze_table) * 2:
        changing = backend.start(db, change(path))
        while not changing.is_over:
            assert db.lookup_rows(path, [{"k": 1}]) == [{"k": 1, "v": 1}]
        changing.result()
