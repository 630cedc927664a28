"""A master that takes over the store of another, which may still be running somewhere."""

from dodona.types import MAX_TIMESTAMP, TIMESTAMPS_PER_REQUEST_MAX, Now, Timestamp
from dodona_oracle.core.allocator import AllocatorSettings
from dodona_oracle.core.master import MasterCore
from dodona_oracle.core.records import MACHINE, ORACLE, Put, changes_of, put_ceiling
from dodona_wire.cores.effects import Append, Effect, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.data import GenerateTimestamps, TimestampRange

NOON_US = 1_700_000_000_000_000
TAKEOVER_US = AllocatorSettings().takeover_us

Store = dict[tuple[str, bytes], bytes]


class Process:
    """A master on some machine, over a store that other machines may have had before."""

    def __init__(self, store: Store, machine: str, start_us: int = 0) -> None:
        items = [(bucket, key, value) for (bucket, key), value in store.items()]
        self.core = MasterCore.recover(items, self.at(start_us), machine=machine)
        self.store = store
        self.settle(start_us)

    def at(self, instant_us: int) -> Now:
        return Now(instant_us, NOON_US + instant_us)

    def settle(self, instant_us: int) -> list[Effect]:
        effects = self.core.take_effects()
        for effect in effects:
            if isinstance(effect, Append):
                for change in changes_of(effect.record):
                    assert isinstance(change, Put)
                    self.store[change.bucket, change.key] = change.value
                self.core.handle_durable(effect.record, self.at(instant_us))
        return [effect for effect in effects if not isinstance(effect, Append)]

    def ask(self, instant_us: int) -> TimestampRange | Failure:
        self.core.handle("route", GenerateTimestamps(1), self.at(instant_us))
        (reply,) = self.settle(instant_us)
        assert isinstance(reply, ReplyTo | ReplyAtOnce)
        assert isinstance(reply.body, TimestampRange | Failure)
        return reply.body


def test_a_first_start_and_a_restart_on_the_same_machine_wait_for_nothing() -> None:
    store: Store = {}
    assert isinstance(Process(store, "first").ask(1), TimestampRange)
    assert isinstance(Process(store, "first", 5).ask(6), TimestampRange)


def test_on_another_machine_the_first_timestamp_waits_until_the_lease_is_over() -> None:
    store: Store = {}
    before = Process(store, "first").ask(1)
    process = Process(store, "second", 5)
    refusal = process.ask(5 + TAKEOVER_US - 1)
    assert isinstance(refusal, Failure)
    assert refusal.kind == "unavailable"
    assert "just started on another machine" in refusal.message
    after = process.ask(5 + TAKEOVER_US)
    assert isinstance(before, TimestampRange)
    assert isinstance(after, TimestampRange)
    assert after.first > before.first


def test_a_master_is_not_ready_until_its_takeover_wait_is_over() -> None:
    store: Store = {}
    first = Process(store, "first")
    assert first.core.why_not_ready(first.at(0)) is None
    first.ask(1)
    core = Process(store, "second", 5).core
    over_us = 5 + TAKEOVER_US
    assert "just started on another machine" in str(core.why_not_ready(first.at(5)))
    assert "just started on another machine" in str(core.why_not_ready(first.at(over_us - 1)))
    assert core.why_not_ready(first.at(over_us)) is None
    assert store[ORACLE, MACHINE] == b"first", "to be asked changes nothing"


def test_a_master_without_unused_timestamps_is_not_ready() -> None:
    (last,) = changes_of(put_ceiling(Timestamp(MAX_TIMESTAMP - 10)))
    assert isinstance(last, Put)
    process = Process({(last.bucket, last.key): last.value}, "")
    late = process.at(2)
    assert "used up" in str(process.core.why_not_ready(late))
    process.core.handle("route", GenerateTimestamps(TIMESTAMPS_PER_REQUEST_MAX), late)
    (reply,) = process.settle(2)
    assert isinstance(reply, ReplyAtOnce)
    assert isinstance(reply.body, Failure)
    assert "used up" in reply.body.message


def test_a_master_that_stops_during_its_takeover_wait_must_wait_again() -> None:
    store: Store = {}
    Process(store, "first").ask(1)
    Process(store, "second", 5).ask(10)
    assert store[ORACLE, MACHINE] == b"first"
    assert isinstance(Process(store, "second", 20).ask(21), Failure)


def test_a_machine_that_completed_a_takeover_does_not_wait_again() -> None:
    store: Store = {}
    Process(store, "first").ask(1)
    Process(store, "second", 5).ask(5 + TAKEOVER_US)
    assert store[ORACLE, MACHINE] == b"second"
    again = 10 * TAKEOVER_US
    assert isinstance(Process(store, "second", again).ask(again), TimestampRange)
    assert isinstance(Process(store, "first", again).ask(again), Failure)


def test_a_store_that_only_one_machine_can_open_names_no_machine() -> None:
    store: Store = {}
    assert isinstance(Process(store, "").ask(1), TimestampRange)
    assert (ORACLE, MACHINE) not in store
