"""Programs of tests end with the block that started them, also if that fails."""

import signal
import subprocess
import sys

import pytest

from suite.programs import program

pytestmark = [pytest.mark.integration, pytest.mark.part("a program that waits for its test")]

WAITS_FOR_EVER = [sys.executable, "-c", "import time\nwhile True: time.sleep(60)"]


def test_a_program_is_killed_if_its_block_fails() -> None:
    seen: list[subprocess.Popen[bytes]] = []

    def fail() -> None:
        with program(WAITS_FOR_EVER) as running:
            seen.append(running)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert seen[0].returncode == -signal.SIGKILL


def test_one_that_ends_is_waited_for() -> None:
    with program([sys.executable, "-c", "raise SystemExit(3)"], stdout=subprocess.PIPE) as running:
        pass
    assert running.returncode == 3
