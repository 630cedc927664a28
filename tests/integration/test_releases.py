"""Releases side by side: servers are upgraded one by one under clients of both releases, and under
callers over REST."""

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
from integration.gateway.rest import Rest
from integration.other_release import RELEASES, paths_of, unpack
from integration.release_work import FIRST_KEYS, create, expected, work

pytestmark = pytest.mark.integration

ORDERS = {
    "the master first": ["master", "proxy", "node 0", "node 1", "gateway"],
    "the gateway first": ["gateway", "node 1", "node 0", "proxy", "master"],
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
        self.cluster = LocalCluster(
            folder / "data",
            arrange=self._arrange,
            back_off_s_max=0.1,
            gateway_count=1,
            is_insecure=True,
        )

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


def takes_mark(url: str) -> bool:
    """Whether a gateway reads a body with a byte order mark: an old one does not."""
    with Rest(url) as rest:
        body = b'\xef\xbb\xbf{"table": "//probe"}'
        types = {"content-type": "application/json"}
        return rest.http.post("/v1/rows/select", content=body, headers=types).is_success


def work_over_rest(url: str, path: str, number: int) -> None:
    """A round that adds rows to both cells and looks at all that there are."""
    with Rest(url) as rest:
        rest("insert_rows", table=path, rows=[{"id": it + number, "n": 1} for it in FIRST_KEYS])
        its_id = rest("begin_transaction")["transaction"]
        rows = [{"id": it + 500 + number, "n": 1} for it in FIRST_KEYS]
        rest("insert_rows_in_transaction", its_id, table=path, rows=rows)
        rest("commit_transaction", its_id)
        found = rest("lookup_rows", table=path, keys=[{"id": it["id"]} for it in rows])
        assert [it["n"] for it in found["rows"]] == [1, 1]
        ids = [it["id"] for it in rest("select_rows", table=path)["rows"]]
        assert len(ids) == 4 * number
        counted = rest("query_rows", sql=f"select cast(sum(n) as bigint) as n from [{path}]")
        assert counted["rows"] == [[4 * number]]


@pytest.mark.parametrize("order", ORDERS.values(), ids=list(ORDERS))
def test_servers_are_upgraded_one_by_one_under_clients_of_both_releases(
    old: Path, tmp_path: Path, order: list[str]
) -> None:
    upgrade = Upgrade(old, tmp_path)
    with upgrade.cluster as cluster, dodona.connect(cluster.master_url) as db:
        create(db, "//new")
        create(db, "//rest")
        create(db, "//probe")
        db.insert_rows("//probe", [{"id": 0, "n": 1}])
        with pytest.raises(InvalidRequest, match="Upgrade the nodes"):  # they are old indeed
            db.lookup_versions("//probe", [{"id": 0}], limit=1)
        assert not takes_mark(cluster.gateway_urls[0])
        with old_client(old, cluster.master_url, "//old") as its:
            for number, name in enumerate(["", *order], 1):
                if name:
                    upgrade.upgrade(name)
                for path, seen in (
                    ("//new", work(db, cluster.master_url, "//new", number)),
                    ("//old", its.work(number)),
                ):
                    assert seen == expected(number), (
                        f"{path} after an upgrade of {name or 'nothing'}"
                    )
                work_over_rest(cluster.gateway_urls[0], "//rest", number)
        assert db.lookup_versions("//probe", [{"id": 0}], limit=1)[0].values["n"][0].value == 1
        assert takes_mark(cluster.gateway_urls[0])
