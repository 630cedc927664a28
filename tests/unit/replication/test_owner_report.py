"""What an owner says of the copies of its log, and what people read about it."""

import msgspec
import pytest
from msgspec.structs import replace

from dodona_replication.core.owner_report import report_of
from dodona_wire.cores.copies import CopiesReport, ReplicaState
from unit.replication.owning import Owning
from unit.replication.replicas import LOG

S = 1_000_000


def places(*away: str, silent_us: int = 5 * S) -> list[ReplicaState]:
    return [
        ReplicaState(f"http://{it}", "spare", it, silent_us=silent_us if it in away else 0)
        for it in "abcd"
    ]


def report(it: Owning, *away: str) -> CopiesReport:
    return replace(report_of(it.owner, places(*away), it.now), wanted_count=3)


def roles(found: CopiesReport) -> dict[str, str]:
    return {it.address: it.role for it in found.replicas}


@pytest.fixture
def it() -> Owning:
    return Owning()


def test_a_sound_log_has_all_its_copies(it: Owning) -> None:
    owner = it.open()
    it.append()
    found = report(it)
    assert (found.log, found.owner, found.epoch) == (LOG, it.identity.owner, owner.epoch)
    assert (found.is_serving, found.copies_min, found.waiting_entries) == (True, 2, 0)
    members = dict.fromkeys(["http://a", "http://b", "http://c"], "member")
    assert roles(found) == {**members, "http://d": "spare"}
    assert found.counts_by_role == {"member": 3, "learner": 0, "spare": 1, "unknown": 0}
    assert set(found.lag_entries_by_address.values()) == {0}
    assert found.lag_entries_by_address.keys() == members.keys()
    assert found.is_complete
    assert found.text == "3 of 3 copies"


def test_a_copy_is_behind_by_what_it_has_not_stored(it: Owning) -> None:
    it.open()
    it.held = {"b"}
    for _ in range(4):
        it.append()
    it.wait(300)
    found = report(it)
    assert found.waiting_entries == 4
    assert found.lag_entries_by_address == {"http://a": 0, "http://b": 4, "http://c": 0}
    assert found.lag_us_by_address == {"http://a": 0, "http://b": 300_000, "http://c": 0}
    it.release_held()
    assert report(it).lag_entries_by_address["http://b"] == 0
    assert report(it).waiting_entries == 0


def test_a_log_that_was_cut_has_no_lag_for_what_is_gone(it: Owning) -> None:
    it.open()
    for _ in range(5):
        index = it.append()
    it.owner.cut(index, it.now)
    it.drive()
    it.append()
    it.owner.copies["b"].part(None)
    it.owner.copies["b"].stored_index = 0
    assert report(it).lag_entries_by_address["http://b"] == 2


def test_changes_of_the_set_are_counted(it: Owning) -> None:
    it.open()
    it.away = {"c"}
    it.wait(900)
    assert report(it, "c").silent_us_by_address["http://c"] == 5 * S, "as the connection knows it"
    it.apply()
    it.owner.offer("abd", it.now, 3)
    it.drive()
    it.apply()
    found = report(it, "c")
    assert found.changes_by_kind == {"joined": 1, "dropped": 1}
    assert roles(found)["http://d"] == "member"
    assert found.is_complete, "the one that is away is not needed"


def test_a_member_whose_address_is_not_known_is_there(it: Owning) -> None:
    it.open()
    found = replace(report_of(it.owner, places()[1:], it.now), wanted_count=3)
    assert roles(found)["a"] == "member"
    assert found.counts_by_role["member"] == 3


def test_an_owner_that_gave_up_does_not_serve(it: Owning) -> None:
    it.open()
    it.owner.release(it.now)
    assert not report(it).is_serving
    assert "the log is not open" in report(it).text


def state(address: str, role: str = "member", **fields: object) -> ReplicaState:
    return msgspec.convert({"address": address, "role": role, **fields}, ReplicaState)


THREE = (state("a"), state("b"), state("c"))


@pytest.mark.parametrize(
    ("replicas", "more", "text"),
    [
        (THREE, {}, "3 of 3 copies"),
        (
            (*THREE[:2], state("c", "spare", silent_us=12 * S)),
            {},
            "2 of 3 copies: c has not answered for 12 s",
        ),
        ((*THREE, state("d", "spare", silent_us=12 * S)), {}, "3 of 3 copies"),
        (
            (*THREE[:2], state("c", "learner", lag_entries=1)),
            {},
            "2 of 3 copies: c is being copied to, and lacks 1 entry",
        ),
        (
            (*THREE[:2], state("c", "unknown", reason="no answer")),
            {},
            "2 of 3 copies: c is not known (no answer)",
        ),
        (
            (*THREE[:2], state("c", lag_entries=40, lag_us=3 * S)),
            {},
            "3 of 3 copies: c is 40 entries and 3 s behind",
        ),
        (
            (THREE[0], state("b", silent_us=9 * S)),
            {},
            "1 of 3 copies: the cell waits, since it needs 2; b has not answered for 9 s",
        ),
        (THREE, {"coordinator_silent_us": 8 * S}, "3 of 3 copies"),
        (
            THREE,
            {"coordinator_silent_us": 40 * S},
            "3 of 3 copies: etcd has not answered for 40 s",
        ),
    ],
)
def test_one_line_says_how_the_copies_are(
    replicas: tuple[ReplicaState, ...], more: dict[str, int], text: str
) -> None:
    found = CopiesReport(
        is_serving=True,
        wanted_count=3,
        copies_min=2,
        replicas=replicas,
        **more,  # type: ignore[arg-type]  # numbers
    )
    assert found.text == text
    assert found.is_complete == (text == "3 of 3 copies")


def test_a_report_of_another_version_is_read() -> None:
    text = b'{"epoch":7,"later":1,"replicas":[{"address":"a","role":"witness"}]}'
    found = msgspec.json.decode(text, type=CopiesReport)
    assert (found.epoch, found.replicas[0].role) == (7, "witness")
