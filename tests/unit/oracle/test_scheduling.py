"""Short turns: what the kernel is told, and that nothing is lost where it does not listen."""

import ctypes
import os
import platform
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dodona_server import scheduling
from dodona_server.scheduling import TURN_US, take_short_turns

GETATTR = {"x86_64": 315, "aarch64": 275}


def in_a_thread(function: Callable[[], Any]) -> Any:
    """What it returns there: a thread's turns are its own."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    (result,) = results
    return result


def attributes_now() -> tuple[int, ...]:
    """What the kernel says about the calling thread."""
    raw = ctypes.create_string_buffer(scheduling._ATTRIBUTES.size)
    number = GETATTR[platform.machine()]
    assert ctypes.CDLL(None).syscall(number, 0, raw, len(raw), 0) == 0
    return scheduling._ATTRIBUTES.unpack(raw.raw)


def kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in GETATTR or kernel_version() < (6, 12),
    reason="the kernel grants no shorter turns",
)
def test_the_kernel_grants_short_turns_at_the_same_priority() -> None:
    def take() -> tuple[bool, tuple[int, ...]]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 3)
        return take_short_turns(), attributes_now()

    is_taken, (_, policy, _, nice, _, runtime_ns, *_) = in_a_thread(take)
    assert is_taken
    assert (policy, nice, runtime_ns) == (os.SCHED_OTHER, 3, TURN_US * 1000)
    assert in_a_thread(attributes_now)[5] != TURN_US * 1000  # other threads' turns are theirs


def test_an_unknown_machine_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "abacus")
    assert in_a_thread(take_short_turns) is False


def test_an_operators_choice_of_policy_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda pid: os.SCHED_BATCH)
    assert in_a_thread(take_short_turns) is False


def test_a_kernel_that_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "_SCHED_SETATTR", {platform.machine(): 1_000_000})
    assert in_a_thread(take_short_turns) is False
