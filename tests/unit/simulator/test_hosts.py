"""Processes of the simulator: the one law, crashes, pauses, calls and their time-outs."""

from collections.abc import Callable
from typing import Any

import pytest

from dodona._core.protocol.steps import MASTER, ORACLE, Calls, Pause, Post, Protocol
from dodona.types import Key, Now, Revision, TabletId, Timestamp, TransactionId
from dodona_wire.cores.effects import Append, Effect, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure
from dodona_wire.messages.catalog import GetTable
from dodona_wire.messages.data import (
    Aborted,
    AskOutcome,
    GenerateTimestamps,
    TimestampRange,
    WriteNonAtomic,
)
from dodona_wire.messages.families import Reply
from simulator.disk import Disk, DiskOptions
from simulator.driver import ClientProcess, Task
from simulator.host import CoreStopped, Host
from simulator.network import Network, NetworkOptions
from simulator.servers import MasterHost, ProxyHost
from simulator.transport import Port, Route, Transport
from simulator.world import World

ADDRESS = "host:1"


class EchoCore:
    """Answers each request with its number: appended first, told at once, or both in order."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.durable: list[Any] = []
        self.deadline_us: int | None = None
        self.ticks: list[int] = []

    def handle(self, route: Any, body: AskOutcome, now: Now) -> None:
        number = body.transaction
        if number == 666:
            raise AssertionError("impossible")
        if number % 2:
            self.effects.append(Append(number))
        answer = ReplyAtOnce if number >= 100 else ReplyTo
        self.effects.append(answer(route, Aborted(number)))

    def handle_durable(self, record: Any, now: Now) -> None:
        self.durable.append(record)

    def tick(self, now: Now) -> None:
        self.ticks.append(now.instant_us)
        self.deadline_us = None

    def next_deadline(self) -> int | None:
        return self.deadline_us

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects


class EchoHost(Host):
    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, "host", ADDRESS, 1_000_000)
        self.disk = Disk(self.world, "host", DiskOptions(flush_us_mean=50_000))

    def _recover(self) -> EchoCore:
        assert self.disk is not None
        self.disk.open(self._on_durable, self.stop)
        return EchoCore()

    def _deliver_other(self, effect: Effect) -> None:
        raise AssertionError(effect)


class Bench:
    """One host, and one port that asks it; `answers` are transactions, `failures` messages."""

    def __init__(self) -> None:
        self.world = World(1)
        self.transport = Transport(self.world, Network(self.world, 100))
        self.host = EchoHost(self.transport)
        self.host.start()
        self.port = Port(self.transport, "asker", 2_000_000)
        self.answers: list[int] = []
        self.failures: list[Failure] = []

    def ask(self, number: int, address: str | None = ADDRESS) -> None:
        self.port.call(address, AskOutcome(TransactionId(number)), self._receive)
        self.world.run_until(self.world.now_us + 5_000)

    def wait(self, duration_us: int = 3_000_000) -> None:
        self.world.run_until(self.world.now_us + duration_us)

    def _receive(self, reply: Reply) -> None:
        if isinstance(reply, Aborted):
            self.answers.append(reply.transaction)
        else:
            assert isinstance(reply, Failure)
            self.failures.append(reply)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# The one law


def test_an_answer_waits_for_an_earlier_append(bench: Bench) -> None:
    bench.ask(2)
    assert bench.answers == [2], "nothing is pending: it leaves at once"
    bench.ask(1)
    bench.ask(4)
    assert bench.answers == [2], "4 appended nothing, but may have seen what 1 did"
    bench.ask(100)
    assert bench.answers == [2, 100], "outside the law"
    bench.wait()
    assert sorted(bench.answers) == [1, 2, 4, 100]
    assert bench.host.core.durable == [1]


def test_immediate_answers_wait_if_the_log_is_far_behind(bench: Bench) -> None:
    bench.host.at_once_age_us_max = 7_000
    bench.host.disk = Disk(bench.world, "slow", DiskOptions(1, stall_rate=1, stall_us_max=10**6))
    bench.host.disk.open(bench.host._on_durable)
    bench.ask(1)
    bench.ask(100)
    assert bench.answers == [100], "5 ms behind"
    bench.ask(102)
    assert bench.answers == [100], "10 ms behind"
    bench.wait()
    assert bench.answers == [100, 1, 102]
    bench.ask(104)
    assert bench.answers[-1] == 104


def test_a_request_interrupted_by_a_crash_gets_a_failure_and_no_answer(bench: Bench) -> None:
    bench.ask(1)
    bench.host.crash()
    bench.wait()
    assert bench.answers == []
    assert len(bench.failures) == 1


def test_a_fuse_ends_a_process_between_two_effects(bench: Bench) -> None:
    crashes = []

    def crash() -> None:
        crashes.append(bench.world.now_us)
        bench.host.crash()

    bench.host.doom.light_fuse(1, crash)
    bench.ask(1)  # its first effect is the append; the second, the answer, is not carried out
    bench.wait()
    assert len(crashes) == 1
    assert bench.answers == []
    assert not bench.host.is_up


def test_a_process_can_crash_while_it_writes_an_append(bench: Bench) -> None:
    bench.host.doom.die_after("append", bench.host.crash)
    bench.ask(2)
    assert bench.host.is_up
    bench.ask(1)
    bench.wait()
    assert not bench.host.is_up


def test_a_process_can_crash_after_a_verdict(bench: Bench) -> None:
    bench.host.doom.die_after("verdict", bench.host.crash)
    bench.ask(2)
    bench.wait()
    assert bench.answers == [2]
    assert not bench.host.is_up


def test_spared_processes_live(bench: Bench) -> None:
    bench.host.doom.light_fuse(1, bench.host.crash)
    bench.host.doom.die_after("append", bench.host.crash)
    bench.host.spare()
    bench.ask(1)
    bench.wait()
    assert bench.answers == [1]


def test_a_pause_holds_everything_up(bench: Bench) -> None:
    bench.host.pause(100_000)
    bench.ask(2)
    assert bench.answers == []
    bench.wait(200_000)
    assert bench.answers == [2]


def test_a_process_on_a_full_disk_is_restarted_until_space_is_free(
    bench: Bench,
) -> None:
    assert bench.host.disk is not None
    bench.host.disk.fill(1_000_000)
    while bench.world.now_us < 3_000_000:
        bench.ask(1)
    assert bench.host.crash_count > 1
    assert bench.host.is_up
    assert 1 in bench.answers
    assert bench.host.core.durable
    assert bench.host.disk.fault_counts["flush refused"] == bench.host.crash_count


def test_a_surprise_in_a_core_ends_the_run(bench: Bench) -> None:
    with pytest.raises(CoreStopped, match="host: AssertionError: impossible"):
        bench.ask(666)


def test_ticks_come_at_the_deadline_in_the_process_s_own_time(bench: Bench) -> None:
    core = bench.host.core
    due_us = bench.host.clock.now().instant_us + 40_000
    core.deadline_us = due_us
    bench.ask(2)
    assert core.ticks == []
    bench.wait(50_000)
    (ticked_us,) = core.ticks
    assert due_us <= ticked_us < due_us + 2_000


# Calls


def test_a_call_without_an_address_reports_that_nothing_was_sent(bench: Bench) -> None:
    bench.ask(2, None)
    bench.wait()
    assert bench.failures == [Failure("unavailable", "can't connect", {"is_sent": False})]


def test_a_call_to_a_dead_process_fails_with_no_connection_or_a_timeout(bench: Bench) -> None:
    bench.host.crash()
    for number in range(20):
        bench.ask(number)
    bench.wait()
    texts = {failure.message for failure in bench.failures}
    assert texts == {"can't connect", "no answer in time"}
    assert len(bench.failures) == 20
    assert bench.answers == []


def test_a_lost_connection_never_reports_that_nothing_was_sent(bench: Bench) -> None:
    for number in range(1, 41, 2):
        bench.ask(number)
    bench.host.crash()
    bench.wait()
    lost = [it for it in bench.failures if it.message == "the connection was lost"]
    assert lost
    assert all("is_sent" not in failure.attributes for failure in lost)


def test_the_first_answer_counts(bench: Bench) -> None:
    bench.ask(2)
    first_id = bench.transport.next_id() - 1
    bench.port.settle(first_id, Aborted(TransactionId(2)))
    assert bench.answers == [2]


class Sink:
    """Counts what comes, and answers nothing."""

    name = "sink"

    def __init__(self) -> None:
        self.count = 0

    def receive(self, route: Route, body: Any) -> None:
        self.count += 1


def test_only_requests_that_the_receiver_can_recognize_are_repeated(bench: Bench) -> None:
    sink = Sink()
    bench.transport.bind("sink:1", sink)
    bench.transport.network.storm(NetworkOptions(repeat_rate=1))
    bench.port.call("sink:1", AskOutcome(TransactionId(1)), lambda _: None)
    bench.wait()
    assert sink.count == 2
    stamp = Timestamp(1)
    write = WriteNonAtomic(TabletId(1), Revision(1), stamp, True, ((Key(b"k"), 1, ("x",)),))
    bench.port.call("sink:1", write, lambda _: None)
    bench.wait()
    assert sink.count == 3


def test_a_closed_port_receives_no_answers_and_no_failures(bench: Bench) -> None:
    bench.ask(1)
    bench.port.close()
    bench.wait()
    assert (bench.answers, bench.failures) == ([], [])


# Half-open connections


def test_a_call_over_a_half_open_connection_is_not_received_and_times_out(bench: Bench) -> None:
    bench.transport.unheard.add("asker", "host")
    bench.ask(2)
    bench.wait(1_900_000)
    assert (bench.answers, bench.failures) == ([], [])
    assert not bench.transport.request_counts
    bench.wait()
    assert bench.failures == [Failure("unavailable", "no answer in time")]
    assert bench.transport.fault_counts["request unheard"] == 1
    bench.transport.unheard.remove("asker", "host")
    bench.ask(2)
    assert bench.answers == [2]


def test_a_half_open_connection_hides_the_crash_of_its_server(bench: Bench) -> None:
    bench.transport.unheard.add("asker", "host")
    for number in range(1, 41):
        bench.ask(number)
    bench.host.crash()
    for number in range(1, 41):
        bench.ask(number)
    bench.wait()
    assert bench.failures == [Failure("unavailable", "no answer in time")] * 80


def test_a_cut_link_hides_the_crash_of_a_server(bench: Bench) -> None:
    bench.transport.network.cut("host", "asker")
    for number in range(1, 41):
        bench.ask(number)
    bench.host.crash()
    bench.wait()
    assert bench.failures == [Failure("unavailable", "no answer in time")] * 40


def test_a_request_whose_answer_is_lost_is_still_carried_out(bench: Bench) -> None:
    bench.transport.unanswered.add("asker", "host")
    bench.ask(1)
    bench.wait()
    assert bench.answers == []
    assert bench.host.core.durable == [1]
    assert bench.failures == [Failure("unavailable", "no answer in time")]
    assert bench.transport.fault_counts["answer lost"] == 1
    bench.transport.calm()
    bench.ask(1)
    bench.wait()
    assert bench.answers == [1]


# Real cores: master and proxy


class Oracle:
    """A master, a proxy and a client process."""

    def __init__(self) -> None:
        self.world = World(2)
        self.transport = Transport(self.world, Network(self.world, 100))
        self.master = MasterHost(self.transport, DiskOptions(), 1_000_000)
        self.proxy = ProxyHost(self.transport, "proxy-0", 1_000_000)
        self.master.start()
        self.proxy.start()
        self.client = ClientProcess(self.transport, "client", [self.proxy.address], 1_000_000)

    def run(self, protocol: Protocol[None], duration_us: int = 20_000_000) -> Task:
        task = Task(self.client, protocol)
        self.world.run_until(self.world.now_us + duration_us)
        return task


def generate(taken: list[Timestamp], count: int = 1) -> Protocol[None]:
    (reply,) = yield Calls(((ORACLE, GenerateTimestamps(count)),))
    assert isinstance(reply, TimestampRange)
    assert reply.count == count
    taken.append(reply.first)


def test_timestamps_rise_across_crashes_and_clock_steps() -> None:
    oracle, taken = Oracle(), list[Timestamp]()
    for round_number in range(6):
        assert oracle.run(generate(taken)).is_over
        oracle.master.clock.step((-3_600 if round_number % 2 else 1_800) * 1_000_000)
        assert oracle.run(generate(taken, 1_000)).is_over
        oracle.master.crash()
        oracle.master.start()
    assert taken == sorted(set(taken))


def test_a_client_waits_for_its_oracle_and_fails_after_its_timeout() -> None:
    oracle, taken = Oracle(), list[Timestamp]()
    oracle.proxy.crash()
    task = oracle.run(generate(taken), 3_000_000)
    assert not task.is_over
    oracle.proxy.start()
    oracle.world.run_until(oracle.world.now_us + 5_000_000)
    assert len(taken) == 1
    oracle.proxy.crash()
    replies: list[Reply] = []
    assert oracle.run(keep(replies, Calls(((ORACLE, GenerateTimestamps(1)),)))).is_over
    assert isinstance(replies[0], Failure)
    assert replies[0].kind == "unavailable"


# The driver


def keep(replies: list[Reply], step: Calls) -> Protocol[None]:
    replies += yield step


def test_replies_come_in_the_order_of_the_calls() -> None:
    oracle, replies = Oracle(), list[Reply]()
    requests = ((MASTER, GenerateTimestamps(0)), (ORACLE, GenerateTimestamps(2)))
    oracle.run(keep(replies, Calls(requests)))
    assert [type(reply) for reply in replies] == [Failure, TimestampRange]


def test_a_step_may_be_over_at_the_first_refusal() -> None:
    oracle, replies = Oracle(), list[Reply]()
    nowhere = (7, AskOutcome(TransactionId(1)))
    step = Calls(((MASTER, GetTable("//none")), nowhere), is_over_at_refusal=True)
    oracle.run(keep(replies, step))
    kinds = [reply.kind for reply in replies if isinstance(reply, Failure)]
    assert kinds == ["table_not_found", "unavailable"]


def test_pauses_posts_and_empty_calls() -> None:
    oracle, seen = Oracle(), list[int]()

    def protocol() -> Protocol[None]:
        assert (yield Pause(20)) == []
        seen.append(oracle.world.now_us)
        assert (yield Post(((MASTER, GetTable("//none")),))) == []
        assert (yield Calls(())) == []
        seen.append(oracle.world.now_us)

    assert oracle.run(protocol()).is_over
    assert seen == [20_000, 20_000]


def test_a_paused_client_continues_later_with_the_answers_that_arrived() -> None:
    oracle, taken = Oracle(), list[Timestamp]()
    oracle.world.after(150, lambda: oracle.client.pause(4_000_000))
    task = oracle.run(generate(taken), 4_000_000)
    assert taken == []
    oracle.world.run_until(4_000_150)
    assert task.is_over
    assert len(taken) == 1


def test_a_pause_of_a_client_is_measured_by_the_clock_of_the_client() -> None:
    oracle, instants = Oracle(), list[int]()

    def protocol() -> Protocol[None]:
        yield Pause(1_000)
        instants.append(oracle.client.instant_us())

    oracle.client.clock.set_instant_drift(-10_000)
    due_us = oracle.client.instant_us() + 1_000_000
    oracle.run(protocol(), 1_010_101)
    assert instants == []
    oracle.world.run_until(1_010_102)
    assert instants == [due_us]


def test_a_killed_task_receives_nothing_more() -> None:
    oracle, taken = Oracle(), list[Timestamp]()
    task = Task(oracle.client, generate(taken))
    kill: Callable[[], None] = task.kill
    oracle.world.after(150, kill)
    oracle.world.run_until(5_000_000)
    assert task.is_over
    assert taken == []


def test_a_surprise_in_a_protocol_ends_the_run() -> None:
    def protocol() -> Protocol[None]:
        yield Pause(1)
        raise AssertionError("impossible")

    with pytest.raises(CoreStopped, match="client: AssertionError: impossible"):
        Oracle().run(protocol())
