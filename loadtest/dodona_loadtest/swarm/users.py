"""Locust's users: each is a session, of the Python client or of a gateway's REST interface.

Owns: how a step is timed and reported, and the HTTP of REST calls. Locust's tables show operations
for the Python client, and requests for REST.
"""

import json
from random import Random
from typing import Any, Final

import gevent
from locust import FastHttpUser, User, task
from locust.user.task import LOCUST_STATE_STOPPING

from dodona._core.protocol.steps import Pause, Protocol, Result
from dodona_loadtest.histories.recorder import Recorder
from dodona_loadtest.histories.rest_session import RestAnswer, RestCall, RestSession
from dodona_loadtest.live.session_group import now_us
from dodona_loadtest.swarm.listeners import register, trial_of
from dodona_loadtest.swarm.trial import Trial
from dodona_wire.errors import DodonaError, InvalidRequest

PATIENCE_S_MAX: Final = 2.0
"""A refused caller waits for the requested time, but no longer than this."""

register()


class Refused(Exception):
    """An operation was refused or stayed unsure. Locust counts this as a failure, by its kind."""


def _told(db: Recorder, error: DodonaError | None) -> tuple[str, str | None]:
    """Return the name of the step, and the kind of its refusal, if it was refused."""
    if isinstance(error, InvalidRequest) and db.doing == "audit of another time":
        return "audit of the future, refused", None  # as it must be
    refusal = db.refusal if error is None else error.kind
    return db.doing, refusal


class _Session(User):
    """A user that does step after step, with the pauses of the options."""

    abstract = True
    _trial: Trial
    _db: Recorder

    def on_start(self) -> None:
        self._trial = trial_of(self.environment)
        self._db = self.new_session()
        self._random = Random(f"{self._trial.asked.order.seed} {self._db.name}")

    def stop(self, force: bool = False) -> bool:
        """Stop as Locust's method does, also at a second call. The history may be full just when
        the time is over, and then both stop everything. Return whether it has ended."""
        if self._state == LOCUST_STATE_STOPPING and not force:
            return False
        return bool(super().stop(force))

    def new_session(self) -> Recorder:
        """Return the session of this user."""
        raise NotImplementedError

    def take_step(self) -> None:
        """Take a step. Raises DodonaError."""
        raise NotImplementedError

    def wait_time(self) -> float:
        """Return the seconds until the next step."""
        mean_ms = self._trial.asked.order.think_ms_mean
        return self._random.expovariate(1.0) * mean_ms / 1e3 if mean_ms else 0.0

    @task
    def step(self) -> None:
        error: DodonaError | None = None
        self._db.refusal, self._db.aside_us = None, 0
        began_us = now_us()
        try:
            self.take_step()
        except DodonaError as raised:
            error = raised
        except Exception as surprise:
            self._trial.flag(self._db, surprise)
            raise
        self.tell(*_told(self._db, error), now_us() - began_us - self._db.aside_us)

    def tell(self, name: str, refusal: str | None, latency_us: int) -> None:
        """Report an operation that is over."""
        self._trial.note(name, latency_us, refusal)


class PythonUser(_Session):
    """A session of the Python client. `--host` is the master's URL."""

    is_python_client = True

    def new_session(self) -> Recorder:
        return self._trial.new_session()

    def take_step(self) -> None:
        self._trial.step(self._db)

    def tell(self, name: str, refusal: str | None, latency_us: int) -> None:
        super().tell(name, refusal, latency_us)
        self.environment.events.request.fire(
            request_type="dodona",
            name=name,
            response_time=latency_us / 1e3,
            response_length=0,
            exception=None if refusal is None else Refused(refusal),
            context={},
        )


class RestUser(_Session, FastHttpUser):
    """A caller of a gateway. `--host` is the gateway's URL, `--master-url` the master's."""

    _wait_s = 0.0

    def new_session(self) -> Recorder:
        token = self._trial.asked.token
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self._trial.new_session(RestSession(self._send, now_us))

    def take_step(self) -> None:
        self._wait_s = 0.0
        _run(self._trial.workload.step(self._db))

    def wait_time(self) -> float:
        """Return the pause, with the wait that an answer asked for: no step includes it."""
        return super().wait_time() + self._wait_s

    def _send(self, call: RestCall) -> RestAnswer:
        options: dict[str, Any] = {} if call.body is None else {"json": call.body}
        with self.client.request(
            call.method,
            call.path,
            name=call.label,
            headers=self._headers,
            catch_response=True,
            **options,
        ) as response:
            answer = RestAnswer(response.status_code or 0, _document(response.content))
            if answer.body is None:
                answer = RestAnswer(0, None)  # cut off, or not from the gateway
            if 200 <= answer.status < 300:
                response.success()
            else:
                kind = answer.body.get("kind") if isinstance(answer.body, dict) else None
                response.failure(kind or f"no answer: {response.error}")
                self._wait_s = _seconds(response.headers)
            return answer


def _document(content: bytes | None) -> Any:
    try:
        return json.loads(content or b"")
    except ValueError:
        return None


def _seconds(headers: Any) -> float:
    """Return how long a refused caller must wait."""
    told = headers.get("Retry-After", "0") if headers else "0"
    return min(PATIENCE_S_MAX, float(told)) if told.isdigit() else 0.0


def _run(protocol: Protocol[Result]) -> Result:
    """Run a protocol of a session that sends by itself: its steps are pauses."""
    try:
        step = next(protocol)
        while True:
            assert isinstance(step, Pause), "a session of REST yields no calls"
            gevent.sleep(step.duration_ms / 1e3)
            step = protocol.send([])
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        protocol.close()
