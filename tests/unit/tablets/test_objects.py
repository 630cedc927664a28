"""Objects in a folder: durable under their names, found again, and removed."""

import os
import stat
from pathlib import Path

import pytest

from dodona.errors import DataCorrupted, InvalidRequest, Unavailable
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.objects import FolderObjects, ObjectMissing


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    (tmp_path / "store").mkdir()
    return FolderObjects(tmp_path / "store")


def put(objects: FolderObjects, folder: Path, name: str, content: bytes = b"content") -> None:
    source = folder / "source"
    source.write_bytes(content)
    objects.put(name, source)


def test_an_object_comes_back_as_it_was_put(objects: FolderObjects, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    put(objects, tmp_path, "a/cell-1/7/1.arrow", content)
    objects.get("a/cell-1/7/1.arrow", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content
    (kept,) = tmp_path.glob("store/a/cell-1/7/*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_names_are_those_below_a_prefix(objects: FolderObjects, tmp_path: Path) -> None:
    assert list(objects.names("a/cell-1")) == []
    for name in ("a/cell-1/7/1.arrow", "a/cell-1/8/1.index", "a/cell-10/7/1.arrow"):
        put(objects, tmp_path, name)
    assert sorted(objects.names("a/cell-1")) == ["a/cell-1/7/1.arrow", "a/cell-1/8/1.index"]


def test_an_object_under_way_has_no_name(
    objects: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(Unavailable, match="refused: No space left on device") as caught:
            put(objects, tmp_path, "1.arrow")
    assert caught.value.attributes["object_store"] == objects.place
    assert list(objects.names("")) == []
    put(objects, tmp_path, "1.arrow")
    assert list(objects.names("")) == ["1.arrow"]


def test_a_name_is_used_once(objects: FolderObjects, tmp_path: Path) -> None:
    put(objects, tmp_path, "a/1.arrow")
    put(objects, tmp_path, "a/1.arrow")  # an answer was lost
    with pytest.raises(DataCorrupted, match="is there already, with another content"):
        put(objects, tmp_path, "a/1.arrow", b"something else")
    objects.get("a/1.arrow", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"content"
    assert list(objects.names("a")) == ["a/1.arrow"]


def test_a_folder_that_is_missing_is_not_made(objects: FolderObjects, tmp_path: Path) -> None:
    """It may be a file system that is not mounted."""
    (tmp_path / "store").rmdir()
    with pytest.raises(Unavailable, match="No such file or directory"):
        put(objects, tmp_path, "a/1.arrow")
    with pytest.raises(Unavailable, match="No such file or directory"):
        objects.get("a/1.arrow", tmp_path / "copy")
    with pytest.raises(InvalidRequest, match="make it, or mount it"):
        list(objects.names("a"))
    assert not (tmp_path / "store").exists()


def test_what_never_got_whole_is_listed_and_removed(objects: FolderObjects, tmp_path: Path) -> None:
    put(objects, tmp_path, "a/1.arrow")
    (tmp_path / "store/a/2.arrow.part").write_bytes(b"con")
    assert sorted(objects.names("a")) == ["a/1.arrow", "a/2.arrow.part"]
    objects.remove(["a/2.arrow"])
    assert list(objects.names("a")) == ["a/1.arrow"]


def test_an_object_that_is_missing_is_told_apart(objects: FolderObjects, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing, match=r"a/1\.arrow"):
        objects.get("a/1.arrow", tmp_path / "copy")
    objects.remove(["a/1.arrow"])


def test_removed_objects_are_gone(objects: FolderObjects, tmp_path: Path) -> None:
    put(objects, tmp_path, "a/1.arrow")
    put(objects, tmp_path, "a/1.index")
    objects.remove(["a/1.arrow"])
    assert list(objects.names("a")) == ["a/1.index"]


def test_a_url_names_a_folder(tmp_path: Path) -> None:
    found = open_objects(f"file://{tmp_path}/with%20space")
    assert found.place == f"file://{tmp_path}/with space"


@pytest.mark.parametrize(
    "url",
    ["", "/data", "file:///", "file://host/folder", "s3://", "s3://[b", "ftp://a/b"],
)
def test_a_url_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="use s3://bucket/prefix, or file:///folder"):
        open_objects(url)


def test_a_secret_in_a_query_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequest, match="come from the environment") as caught:
        open_objects("s3://bucket/prefix?aws_secret_access_key=hidden")
    assert "hidden" not in str(caught.value)


def test_a_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidRequest, match="set AWS_ACCESS_KEY_ID") as caught:
        open_objects("s3://key:secret@bucket/prefix")
    assert "secret@" not in str(caught.value)
