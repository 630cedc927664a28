"""Calls to an object store are counted, with their outcomes and their bytes."""

from pathlib import Path

import pytest

from dodona.errors import Unavailable
from dodona_tablets.shell.object_counts import CALLS, OUTCOMES, CountedObjects
from dodona_tablets.shell.objects import FolderObjects, ObjectMissing


@pytest.fixture
def objects(tmp_path: Path) -> CountedObjects:
    (tmp_path / "store").mkdir()
    (tmp_path / "file").write_bytes(b"x" * 100)
    return CountedObjects(FolderObjects(tmp_path / "store"))


def counted(objects: CountedObjects) -> dict[str, int]:
    calls = objects.counts().calls
    return {f"{it} {how}": n for it, counts in calls.items() for how, n in counts.items() if n}


def test_each_call_counts_once_with_its_bytes(objects: CountedObjects, tmp_path: Path) -> None:
    objects.put("a/b", tmp_path / "file")
    objects.put("a/c", tmp_path / "file")
    assert sorted(objects.names("a")) == ["a/b", "a/c"]
    objects.get("a/b", tmp_path / "got")
    objects.remove(["a/b", "a/c"])
    assert counted(objects) == {"put done": 2, "list done": 1, "get done": 1, "remove done": 1}
    found = objects.counts()
    assert (found.uploaded_bytes, found.fetched_bytes) == (200, 100)
    assert objects.place == f"file://{tmp_path}/store"


def test_failures_count_without_bytes(objects: CountedObjects, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing):
        objects.get("a/b", tmp_path / "got")
    (tmp_path / "store").rmdir()
    (tmp_path / "store").write_bytes(b"a file where the folder was")
    with pytest.raises(Unavailable):
        objects.put("a/b", tmp_path / "file")
    with pytest.raises(Unavailable):
        objects.get("a/b", tmp_path / "got")
    assert counted(objects) == {"put failed": 1, "get missing": 1, "get failed": 1}
    assert objects.counts().uploaded_bytes == objects.counts().fetched_bytes == 0


def test_all_outcomes_are_there_before_the_first_call(objects: CountedObjects) -> None:
    """Else the increase of a counter would miss its first count."""
    assert objects.counts().calls == {it: dict.fromkeys(OUTCOMES, 0) for it in CALLS}
