"""Whose the master transactions of a gateway are."""

import pytest

from dodona.types import TreeTransactionId
from dodona_ytsaurus.commands import master_transactions
from dodona_ytsaurus.commands.master_transactions import LOCKS_MAX, MasterTransactions, note_lock
from dodona_ytsaurus.commands.transactions import is_master

ONE = TreeTransactionId(17)


def test_only_the_owner_finds_a_master_transaction_by_its_id() -> None:
    known = MasterTransactions(5)
    text = known.add("ada", ONE, 1_000)
    words = text.split("-")
    assert len(words) == 4
    assert int(words[1], 16) == ONE
    assert int(words[2], 16) == 5 << 16 | 1
    assert is_master(text)
    found = known.find(text, "ada")
    assert found is not None
    assert (found.id, found.timeout_ms) == (ONE, 1_000)
    assert known.find(text, "eve") is None
    assert known.find("1-2-3-4", "ada") is None
    known.drop(text)
    known.drop(text)
    assert known.find(text, "ada") is None


def test_an_id_is_not_guessed() -> None:
    known = MasterTransactions(0)
    texts = {known.add("ada", ONE, 1_000) for _ in range(1_000)}
    assert len(texts) == 1_000


def test_those_that_are_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_transactions, "OWNED_MAX", 3)
    known = MasterTransactions(0)
    used, other = known.add("ada", ONE, 1), known.add("ada", ONE, 1)
    for _ in range(5):
        known.add("ada", ONE, 1)
        assert known.find(used, "ada") is not None
    assert known.find(other, "ada") is None


def test_locks_are_remembered_and_bounded() -> None:
    known = MasterTransactions(0)
    found = known.find(known.add("ada", ONE, 1), "ada")
    assert found is not None
    for it in range(LOCKS_MAX + 5):
        note_lock(found, str(it))
        note_lock(found, str(it))
    assert len(found.locks) == LOCKS_MAX
    assert "4" not in found.locks
    assert "5" in found.locks


@pytest.mark.parametrize("text", ["1-2-30002-4", "1-2-1-4", "", "x", "1-2-10001", "1-2-10003-4"])
def test_other_ids_are_no_master_transaction_s(text: str) -> None:
    assert not is_master(text)
