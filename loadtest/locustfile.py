"""The workloads as Locust users: `locust --headless -f loadtest/locustfile.py --host MASTER_URL`.

Each user is a session of the Python client; at the end of the test the checkers judge all that the
users did, and a violation makes Locust's exit status 1. Locust's own statistics show the latencies.

Locust patches threads and sockets for gevent when it is imported; the client's event loop must have
neither. So it runs in a thread that the kernel made, not gevent, over uvloop, which has sockets of
its own; a user waits in its greenlet until that thread calls back. What runs there must start no
threads: they would be greenlets of a hub that never has its turn.
"""

import logging
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import uvloop
from gevent import get_hub
from gevent.event import AsyncResult
from gevent.monkey import get_original
from locust import User, constant, events, task
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from dodona.errors import DodonaError, InvalidRequest
from dodona_loadtest.histories.history import Transaction
from dodona_loadtest.live.phases import NotLive, TablesInTheWay
from dodona_loadtest.live.run import Order, Report, Run
from dodona_loadtest.workloads import WORKLOADS

WORDS_BY_STATUS: Final = {"fail": "refused", "info": "unsure", "open": "unsure"}

Answer = TypeVar("Answer")


class Refused(Exception):
    """A commit was refused or stayed unsure: what Locust counts as a failure, by its kind."""


class Native:
    """An event loop in a thread of the kernel's."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._pending_count = 0
        get_original("_thread", "start_new_thread")(self._loop.run_forever, ())

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """What it comes to. Only this greenlet waits; if it is killed, the coroutine goes on."""
        hub, done = get_hub(), AsyncResult()

        async def run() -> None:
            try:
                end = partial(done.set, await coroutine)
            except Exception as error:  # noqa: BLE001 (whatever it is, the greenlet raises it)
                end = partial(done.set_exception, error)
            hub.loop.run_callback_threadsafe(end)

        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(run()))
        answer: Answer = done.get()
        return answer


class Judged:
    """The run that all users of a test take part in."""

    def __init__(self, environment: Environment) -> None:
        options = environment.parsed_options
        assert options is not None
        assert environment.host, "--host is the master's URL"
        self.native = Native()
        order = Order(environment.host, options.workload, options.seed)
        self.run: Run = self.native.run(self._make(order))
        self.native.run(self.run.begin())

    async def _make(self, order: Order) -> Run:
        return Run(order)

    def finish(self) -> Report:
        """Once no user begins anything any more."""
        return self.native.run(self._finish())

    async def _finish(self) -> Report:
        self.run.party.end()
        await self.run.party.wait_until_idle()
        report = await self.run.finish()
        await self.run.party.close()
        return report


judged: dict[Environment, Judged] = {}


def add_options(parser: LocustArgumentParser, **_: Any) -> None:
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="bank")
    parser.add_argument("--seed", type=int, default=1, help="of what users want to do")


def expect_a_verdict(environment: Environment, **_: Any) -> None:
    """Without one the exit status is not that of success. The time that the imports took must not
    count as time of the test: the hub's clock stands still until its first turn."""
    environment.process_exit_code = 2
    get_hub().loop.update_now()


def set_up(environment: Environment, **_: Any) -> None:
    try:
        judged[environment] = Judged(environment)
    except (DodonaError, NotLive, TablesInTheWay) as error:
        print(f"no set-up: {error}")
        assert environment.runner is not None
        environment.runner.quit()


def judge(environment: Environment, **_: Any) -> None:
    if environment not in judged:
        return
    report = judged.pop(environment).finish()
    print("\n".join(report.lines()))
    # Refusals are failures in Locust's tables, and right: they alone do not fail the test.
    environment.process_exit_code = 1 if report.violations else 0


events.init_command_line_parser.add_listener(add_options)  # type: ignore[no-untyped-call]
events.init.add_listener(expect_a_verdict)  # type: ignore[no-untyped-call]
events.test_start.add_listener(set_up)  # type: ignore[no-untyped-call]
events.test_stop.add_listener(judge)  # type: ignore[no-untyped-call]
for chatty in ("httpx", "picows"):
    logging.getLogger(chatty).setLevel(logging.WARNING)  # Locust shows what is above it


class Session(User):
    """One session. Its steps are of any kind, so they are counted by what they were."""

    wait_time = constant(0.005)

    def on_start(self) -> None:
        self._run = judged[self.environment]
        self._db = self._run.run.new_session()

    @task
    def step(self) -> None:
        began = time.perf_counter()
        error: Exception | None = None
        name = "read"
        try:
            transactions = self._run.native.run(self._run.run.step(self._db))
        except InvalidRequest:
            name = "read of the future, refused"
        except DodonaError as raised:
            error = raised
        else:
            name, error = _told(transactions)
        self.environment.events.request.fire(
            request_type="dodona",
            name=name,
            response_time=(time.perf_counter() - began) * 1000,
            response_length=0,
            exception=error,
            context={},
        )


def _told(transactions: list[Transaction]) -> tuple[str, Exception | None]:
    """What the step was, and the failure that its caller was told of, if any."""
    commits = [t for t in transactions if t.commit_us is not None]
    if not commits:
        return "read" if transactions else "timestamps or newest row", None
    last = commits[-1]
    name = "blind write" if last.is_blind else "transaction"
    if last.status == "ok":
        return name, None
    return name, Refused(f"{WORDS_BY_STATUS[last.status]}: {last.error.partition(':')[0]}")
