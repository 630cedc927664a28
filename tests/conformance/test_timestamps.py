"""Timestamps: unique, monotonic, and about the time at which they were made."""

from itertools import pairwise

import pytest

import dodona
from conformance.backends import Backend
from conformance.tables import MakeTable
from dodona.client import Client

pytestmark = pytest.mark.part("transactions on real processes")


def test_all_timestamps_are_unique_across_clients(
    backend: Backend, db: Client, other: Client
) -> None:
    started = [
        backend.start(client, client._session.generate_timestamp(1000))
        for _ in range(10)
        for client in (db, other)
    ]
    firsts = sorted(each.result() for each in started)
    assert all(after - before >= 1000 for before, after in pairwise(firsts))


def test_a_timestamp_asked_for_after_another_was_got_is_larger(db: Client, other: Client) -> None:
    last = db.generate_timestamp()
    for number in range(50):
        now = (db, other)[number % 2].generate_timestamp()
        assert now > last
        last = now


def test_timestamps_rise_across_a_restart_of_the_master(backend: Backend, db: Client) -> None:
    before = db.generate_timestamp()
    backend.restart_master()
    assert db.generate_timestamp() > before


def test_a_timestamp_is_within_about_one_second_of_the_clock(backend: Backend, db: Client) -> None:
    before_us = backend.unix_us()
    at = db.generate_timestamp()
    after_us = backend.unix_us()
    told_us = dodona.datetime_from_timestamp(at).timestamp() * 1e6
    assert before_us - 1_500_000 <= told_us <= after_us + 1_500_000


def test_a_commit_timestamp_is_between_timestamps_from_before_and_after_the_commit(
    db: Client, make_table: MakeTable
) -> None:
    path = make_table(pivot_keys=[[], [100]])
    with db.begin() as transaction:
        transaction.insert_rows(path, [{"k": 1, "v": 1}, {"k": 100, "v": 1}])
        before = db.generate_timestamp()
    assert transaction.start_timestamp is not None
    assert transaction.commit_timestamp is not None
    assert transaction.start_timestamp < before < transaction.commit_timestamp
    assert transaction.commit_timestamp < db.generate_timestamp()
