"""Tokens in a real cluster: the first is made once by any number of processes."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import dodona
from dodona_gateway.core.access.grants import TOKENS
from dodona_local.launcher import LocalCluster

pytestmark = pytest.mark.integration

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "access.md").read_text()
FIRST: Final = """
import asyncio, sys
import dodona.aio
from dodona_gateway.shell.tokens import ensure_first_token

async def ensure(url):
    async with await dodona.aio.connect(url) as one, await dodona.aio.connect(url) as other:
        sys.stdout.write("ready\\n")
        sys.stdout.flush()
        sys.stdin.readline()
        return await asyncio.gather(*(ensure_first_token(it) for it in (one, other)))

print(*(it for it in asyncio.run(ensure(sys.argv[1])) if it is not None))
"""
PROCESSES: Final = 3


def test_the_first_token_is_made_once_by_many_processes(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data") as cluster:
        command = [sys.executable, "-c", FIRST, cluster.master_url]
        started = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=60)[0].split() for process in started]
        assert [process.returncode for process in started] == [0] * PROCESSES
        (text,) = [text for texts in said for text in texts]
        with dodona.connect(cluster.master_url) as db:
            (row,) = db.select(TOKENS)
        assert (row["name"], row["grants"]) == ("first", ["admin://**"])
        assert text.split("_")[1] == row["id"]
