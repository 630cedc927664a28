"""The page about the client: its Python and its commands run as they are written, and its tables
are the code's."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest
from yt.wrapper.errors import create_response_error

from dodona.errors import ERRORS_BY_KIND
from dodona_gateway.core.ytsaurus.errors import error_status, yt_error
from dodona_gateway.shell.ytsaurus.api import COMMANDS
from dodona_local.launcher import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs" / "ytsaurus-client.md").read_text()
WRITTEN_URL: Final = "http://127.0.0.1:8502"
BY_STATUS: Final = {401: "YtTokenError", 500: "YtProxyUnavailable"}


def blocks(kind: str) -> str:
    found = "\n".join(re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL))
    assert WRITTEN_URL in found
    return found


def test_the_code_runs_in_order(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", gateway_count=1, is_insecure=True) as cluster:
        url = cluster.gateway_urls[0]
        known = {k: v for k, v in os.environ.items() if not k.startswith("YT_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**known, "HOME": str(tmp_path), "PATH": path}
        code = blocks("python").replace(WRITTEN_URL, url)
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
        lines = blocks("console").replace(WRITTEN_URL, url).splitlines()
        commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(commands)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=100,
            check=True,
        )
    assert ended.stdout.splitlines() == [line for line in lines if not line.startswith("$ ")]


def test_the_table_of_commands_is_the_code_s() -> None:
    (section,) = re.findall(r"## What works\n(.*?)\n\n\(", PAGE, re.DOTALL)
    assert set(re.findall(r"`([a-z_]+)`", section)) == set(COMMANDS)


@pytest.mark.parametrize("kind", sorted(ERRORS_BY_KIND))
def test_the_table_of_errors_is_the_code_s(kind: str) -> None:
    error = ERRORS_BY_KIND[kind]("x")
    told = msgspec.to_builtins(yt_error(error))
    name = BY_STATUS.get(error_status(error)) or type(create_response_error(told)).__name__
    assert f"| `{kind}` | {told['code']} | `{name}` |\n" in PAGE


def test_the_table_has_no_other_errors() -> None:
    assert set(re.findall(r"^\| `([a-z_]+)` \| \d+ \|", PAGE, re.MULTILINE)) == set(ERRORS_BY_KIND)
