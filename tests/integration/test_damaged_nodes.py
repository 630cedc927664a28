"""A node of a cluster whose files are lost or damaged: it deletes nothing, says why it does not
start, and the other nodes serve. With its files back, all is there.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dodona
from dodona.errors import Unavailable
from dodona_local.launcher import LocalCluster
from suite.programs import program

pytestmark = pytest.mark.integration

SCHEMA: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "v", "type": "int64"},
]
PATH = "//damaged/rows"
STOP_WAIT_S_MAX = 60.0
IDS = list(range(0, 200, 5))
"""In two tablets, each on a node of its own."""


def write(db: dodona.Client, value: int) -> None:
    db.insert_rows(PATH, [{"id": it, "v": value} for it in IDS])


def values(db: dodona.Client, ids: list[int]) -> set[int]:
    rows = db.lookup_rows(PATH, [{"id": it} for it in ids], timeout_ms=3_000)
    assert len(rows) == len(ids)
    return {it["v"] for it in rows}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows in chunks, and later ones in logs."""
    folder: Path = tmp_path_factory.mktemp("damaged") / "data"
    with LocalCluster(folder) as cluster, dodona.connect(cluster.master_url) as db:
        db.create_table(PATH, SCHEMA, pivot_keys=[[], [100]], mount=True)
        write(db, 1)
        db.unmount_table(PATH)
        db.mount_table(PATH)
        write(db, 2)
    return folder


def files_of(folder: Path) -> dict[Path, bytes]:
    return {it: it.read_bytes() for it in sorted(folder.rglob("*")) if it.is_file()}


def lose(files: list[Path]) -> None:
    for it in files:
        it.unlink()


def zero_header(files: list[Path]) -> None:
    content = files[-1].read_bytes()
    files[-1].write_bytes(bytes(8192) + content[8192:])


DAMAGES: dict[str, Callable[[list[Path]], None]] = {
    "its log is lost": lose,
    "a header is zeroed": zero_header,
}


@contextmanager
def up(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """`dodona up` → the master's address, the line that says it is ready, and what it warns of."""
    command = [sys.executable, "-m", "dodona_local.cli", "up", "--data-dir", str(folder)]
    warnings = folder.parent / "warnings"
    with (
        warnings.open("wb") as said,
        program(
            [*command, "--port-base", "0"], stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().rstrip()]
            while lines[-1] and not lines[-1].startswith("ready"):
                lines.append(process.stdout.readline().rstrip())
            addresses = dict(line.rsplit(" ", 1) for line in lines if " http" in line)
            yield addresses["master"], lines[-1], warnings
        finally:
            process.terminate()
            assert process.wait(STOP_WAIT_S_MAX) == 0


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_others_serve_and_nothing_is_deleted(made: Path, damage: str) -> None:
    node = made / "node-0"
    before = files_of(node)
    logs = [it for it in before if it.parent.name == "log" and it.suffix == ".mdb"]
    chunks = {it: content for it, content in before.items() if it.parent.name == "chunks"}
    assert logs
    assert chunks
    DAMAGES[damage](logs)
    with up(made) as (url, ready, warnings), dodona.connect(url) as db:
        assert ready == "ready, except node 0"
        (here, there) = ([it for it in IDS if it < 100], [it for it in IDS if it >= 100])
        if db.get_table(PATH).tablets[0].cell == 1:
            here, there = there, here
        assert values(db, there) == {2}
        with pytest.raises(Unavailable) as caught:
            values(db, here)
        assert caught.value.attributes["cell"] == 0
        db.insert_rows(PATH, [{"id": there[0], "v": 2}])
        (told,) = [it for it in warnings.read_text().splitlines() if "failed to start" in it]
        assert told.startswith("node 0 failed to start")
        assert str(node) in told, "which file, and where"
    assert {it: content for it, content in files_of(node).items() if it in chunks} == chunks
    for file, content in before.items():
        file.write_bytes(content)
    with LocalCluster(made) as cluster, dodona.connect(cluster.master_url) as db:
        assert values(db, IDS) == {2}
