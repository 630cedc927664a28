"""Servers that are told to stop while they still import, as a pod that ends in its first second.

The first process of a container gets no SIGTERM without a handler: it would run until it is killed.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from suite.programs import program
from suite.waiting import WAIT_S_MAX, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.part("a server that stops before it serves")]

SLOW = """
import pathlib
import time

pathlib.Path(__file__).with_name("begun").touch()
time.sleep(600)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("dodona_oracle", "master"),
        ("dodona_oracle", "proxy"),
        ("dodona_tablets",),
        ("dodona_gateway",),
    ],
    ids=" ".join,
)
def test_sigterm_during_the_imports_ends_a_server_in_order(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """Each needs msgspec, which takes ten minutes here."""
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec" / "__init__.py").write_text(SLOW)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", *words]
    with program(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        wait_until((tmp_path / "msgspec" / "begun").exists)
        running.send_signal(signal.SIGTERM)
        assert running.wait(WAIT_S_MAX) == 0
        assert running.stderr is not None
        assert running.stderr.read() == ""
