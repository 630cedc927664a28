"""Releases side by side: servers are upgraded one by one under clients of both releases."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona.errors import InvalidRequest
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from integration.other_release import RELEASES, paths_of, unpack
from integration.release_work import create, expected, work

pytestmark = pytest.mark.integration

ORDERS = {
    "the master first": ["master", "proxy", "node 0", "node 1"],
    "the nodes first": ["node 1", "node 0", "proxy", "master"],
}


@pytest.fixture(scope="module", params=RELEASES, ids=lambda path: path.name.partition(".")[0])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(request.param, tmp_path_factory.mktemp("old"))


def test_there_is_an_older_release() -> None:
    assert RELEASES


class Upgrade:
    """A cluster all of whose servers are old at first."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._switch = folder / "old"
        self._switch.write_text("\n".join(ORDERS["the master first"]))
        self.cluster = LocalCluster(folder / "data", arrange=self._arrange, back_off_s_max=0.1)

    def _arrange(self, plans: list[Plan]) -> list[Plan]:
        return [
            replace(
                plan,
                module="integration.other_release",
                arguments=(
                    *(str(self._root), str(self._switch), plan.name),
                    *(plan.module, *plan.arguments),
                ),
            )
            for plan in plans
        ]

    def upgrade(self, name: str) -> None:
        names = [it for it in self._switch.read_text().splitlines() if it != name]
        self._switch.write_text("\n".join(names))
        self.cluster.kill(name)
        self.cluster.wait_until_ready(name, start_count=2)


class OldClient:
    """A client of the old release, in a process of its own."""

    def __init__(self, running: "subprocess.Popen[str]") -> None:
        self._running = running

    def work(self, number: int) -> dict[str, Any]:
        assert self._running.stdin is not None
        assert self._running.stdout is not None
        self._running.stdin.write(f"{number}\n")
        self._running.stdin.flush()
        line = self._running.stdout.readline()
        assert line, "the old client ended: its error is above"
        seen: dict[str, Any] = json.loads(line)
        return seen


@contextmanager
def old_client(root: Path, url: str, path: str) -> Iterator[OldClient]:
    paths = [*paths_of(root), *[it for it in [os.environ.get("PYTHONPATH")] if it]]
    running = subprocess.Popen(
        [sys.executable, "-m", "integration.release_work", url, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert Path(running.stdout.readline()).is_relative_to(root)
        yield OldClient(running)
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("order", ORDERS.values(), ids=list(ORDERS))
def test_servers_are_upgraded_one_by_one_under_clients_of_both_releases(
    old: Path, tmp_path: Path, order: list[str]
) -> None:
    upgrade = Upgrade(old, tmp_path)
    with upgrade.cluster as cluster, dodona.connect(cluster.master_url) as db:
        create(db, "//new")
        create(db, "//probe")
        db.insert_rows("//probe", [{"id": 0, "n": 1}])
        with pytest.raises(InvalidRequest, match="upgrade the nodes"):  # they are old indeed
            db.lookup_versions("//probe", [{"id": 0}], limit=1)
        with old_client(old, cluster.master_url, "//old") as its:
            for number, name in enumerate(["", *order], 1):
                if name:
                    upgrade.upgrade(name)
                for path, seen in (
                    ("//new", work(db, "//new", number)),
                    ("//old", its.work(number)),
                ):
                    assert seen == expected(number), (
                        f"{path} after an upgrade of {name or 'nothing'}"
                    )
        assert db.lookup_versions("//probe", [{"id": 0}], limit=1)[0].values["n"][0].value == 1
