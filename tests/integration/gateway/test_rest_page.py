"""docs/rest.md and the README's lines about REST are true: they run as written, and say what they
say. With curl, if there is one, and with a stand-in for it in any case."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST
from integration.gateway import curl as stand_in

pytestmark = pytest.mark.integration

ROOT: Final = Path(__file__).resolve().parents[3]
MARK: Final = "--- the next command"
NUMBER: Final = re.compile(r"\d{17,}")
STAND_IN: Final = f'curl() {{ {sys.executable} {stand_in.__file__} "$@"; }}'
CURLS: Final = {"stand-in": STAND_IN, "curl": ""}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    with LocalCluster(
        tmp_path / "data", node_count=1, gateway_count=1, is_insecure=True
    ) as cluster:
        yield cluster.gateway_urls[0]


def commands_of(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page's console blocks that is about REST, and what it says."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        if "curl" not in block:
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            count = 1
            while "\n".join(lines[:count]).count("'") % 2:  # a quoted text goes on
                count += 1
            yield "\n".join(lines[:count]), "\n".join(lines[count:])


def normal(text: str) -> str:
    return NUMBER.sub("N", text.strip())


@pytest.mark.parametrize("curl", CURLS)
@pytest.mark.parametrize("page", ["docs/rest.md", "README.md"])
def test_the_page_says_what_is_answered(gateway: str, tmp_path: Path, page: str, curl: str) -> None:
    if curl == "curl" and shutil.which("curl") is None:
        pytest.skip("this machine has no curl: the stand-in has done the same")
    commands = list(commands_of((ROOT / page).read_text()))
    assert len(commands) >= 5
    script = [CURLS[curl], "set -e"]
    for command, _ in commands:
        script += [command.replace("http://127.0.0.1:8502", gateway), f"echo; echo '{MARK}'"]
    assert HOST in gateway
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    said = done.stdout.split(f"{MARK}\n")
    for (command, expected), printed in zip(commands, said, strict=False):
        assert normal(printed) == normal(expected), command
    assert done.returncode == 0
    assert len(said) == len(commands) + 1
