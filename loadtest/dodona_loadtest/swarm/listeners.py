"""Locust's events: the options of a test, its beginning, and its end.

Owns: the trials that are under way, one an environment, and the exit status. Refusals are failures
in Locust's own tables, which is right. They alone fail no test.
"""

import logging
from typing import Any, Final

from gevent import get_hub
from gevent.event import Event
from locust import events
from locust.argument_parser import LocustArgumentParser
from locust.env import Environment

from dodona_loadtest.live.phases import NotLive, TablesInTheWay
from dodona_loadtest.swarm.options import add_options
from dodona_loadtest.swarm.trial import Trial
from dodona_loadtest.swarm.verdict import FAILED, NOTHING_TO_JUDGE
from dodona_wire.errors import DodonaError

STOP_S_MAX: Final = 70
"""Seconds in which users may finish at the end of the test: longer than any answer takes. If they
were killed in the middle of a call, its end would not be known."""

_trials: dict[Environment, Trial] = {}
_judged: dict[Environment, Event] = {}


def trial_of(environment: Environment) -> Trial:
    """Return the trial that is under way."""
    return _trials[environment]


def register() -> None:
    """Register the listeners, once a process, before the command line is read."""
    events.init_command_line_parser.add_listener(_add_options)  # type: ignore[no-untyped-call]
    events.init.add_listener(_expect_a_verdict)  # type: ignore[no-untyped-call]
    events.test_start.add_listener(_begin)  # type: ignore[no-untyped-call]
    events.test_stop.add_listener(_judge)  # type: ignore[no-untyped-call]
    for chatty in ("httpx", "picows"):
        logging.getLogger(chatty).setLevel(logging.WARNING)  # Locust shows all above it


def _add_options(parser: LocustArgumentParser, **_: Any) -> None:
    add_options(parser)


def _expect_a_verdict(environment: Environment, **_: Any) -> None:
    """Expect a verdict: without one the exit status is not that of success. The time of the imports
    must not count as time of the test, because the hub's clock stands until its first turn."""
    environment.process_exit_code = NOTHING_TO_JUDGE
    environment.stop_timeout = environment.stop_timeout or STOP_S_MAX
    get_hub().loop.update_now()
    if _is_headless(environment):
        _set_up(environment)  # before the clock of --run-time starts: filling is no load


def _is_headless(environment: Environment) -> bool:
    return environment.parsed_options is not None and environment.parsed_options.headless is True


def _set_up(environment: Environment) -> None:
    try:
        _trials[environment] = Trial(environment)
    except (DodonaError, NotLive, TablesInTheWay, ValueError, OSError) as error:
        print(f"no set-up: {error}")


def _begin(environment: Environment, **_: Any) -> None:
    if not _is_headless(environment):
        _set_up(environment)
    if environment in _trials:
        _trials[environment].begin()
    else:
        assert environment.runner is not None, "it runs"
        environment.runner.quit()


def _judge(environment: Environment, **_: Any) -> None:
    """Judge the test. Locust logs what a listener raises, and continues. The status of a test that
    could not be judged must not be that of a test with nothing to judge."""
    trial = _trials.pop(environment, None)
    if trial is None:
        if environment in _judged:  # the second call: the history was full just at the end
            _judged[environment].wait()
        return
    environment.process_exit_code = FAILED
    over = _judged[environment] = Event()
    try:
        _tell(environment, trial)
    finally:
        over.set()


def _tell(environment: Environment, trial: Trial) -> None:
    try:
        verdict = trial.finish()
    except Exception:
        print("\n".join(trial.tally.lines(trial.seconds)))
        print("\nFAILED: it could not be judged")
        raise
    print("\n".join(verdict.lines()))
    environment.process_exit_code = verdict.exit_code
