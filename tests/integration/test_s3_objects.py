"""Objects in an S3 that is not ours: they come back, or an error says what is not known."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dodona.errors import DataCorrupted, InvalidRequest, Unavailable
from dodona.types import CellId
from dodona_tablets.shell import s3_objects
from dodona_tablets.shell.chunk_cache import ChunkCache
from dodona_tablets.shell.chunk_names import ChunkNames
from dodona_tablets.shell.object_urls import open_objects
from dodona_tablets.shell.objects import ObjectMissing, Objects
from dodona_wire.types import ClusterId
from suite.s3 import (
    BUCKET,
    ENVIRONMENT,
    S3,
    answer_lost,
    as_asked,
    busy,
    request_lost,
    s3_server,
    slowly,
)
from unit.tablets.chunks.making import SCHEMA
from unit.tablets.chunks.test_chunk_files import batches

pytestmark = pytest.mark.integration

NAME = "home/cell-1/7/1.arrow"


@pytest.fixture(scope="module")
def server() -> Iterator[S3]:
    with s3_server() as it:
        yield it


@pytest.fixture
def s3(server: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url}.items():
        monkeypatch.setenv(name, value)
    yield server
    server.faults.clear()
    server.ignores_conditions = False
    server.requests.clear()


@pytest.fixture
def objects(s3: S3, request: pytest.FixtureRequest) -> Objects:
    return open_objects(f"s3://{BUCKET}/{request.node.name.replace('[', '-').rstrip(']')}")


def put(objects: Objects, folder: Path, content: bytes = b"content", name: str = NAME) -> None:
    source = folder / "source"
    source.write_bytes(content)
    objects.put(name, source)


def content_of(objects: Objects, folder: Path, name: str = NAME) -> bytes:
    objects.get(name, folder / "copy")
    return (folder / "copy").read_bytes()


@pytest.mark.part("chunks go to an object store over its protocol, and come back")
def test_a_chunk_goes_to_the_store_and_another_machine_fetches_it(
    objects: Objects, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    first = ChunkCache(here, objects, ChunkNames("home", CellId(1), 7))
    assert first.numbers(lambda: ClusterId(5)) == set()
    info = first.write(first.first_number, SCHEMA, batches())
    assert info is not None
    second = ChunkCache(there, objects, ChunkNames("home", CellId(1), 8))
    assert second.numbers(lambda: ClusterId(5)) == {info.number}
    chunk = second.open_all({info.number: info})[info.number]
    assert chunk.is_away
    chunk.bring(second.fetch(info))
    rows = sum(chunk.block(it).batch.num_rows for it in range(len(chunk.index.blocks)))
    assert rows == info.row_count
    second.remove([info.number])
    assert list(objects.names("home")) == []


def test_an_object_of_many_parts_comes_back(
    objects: Objects, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_objects, "WHOLE_BYTES_MAX", 1 << 20)
    content = os.urandom((17 << 20) + 1)
    put(objects, tmp_path, content)
    assert sum(it.startswith("PUT") for it in s3.requests) == 3
    assert content_of(objects, tmp_path) == content
    put(objects, tmp_path, content)  # an answer was lost
    for other in (content + b"1", content[:-1], b"0" + content[1:]):
        with pytest.raises(DataCorrupted, match="is there already"):
            put(objects, tmp_path, other)


@pytest.mark.parametrize("fault", [busy, request_lost])
def test_each_part_of_an_object_is_asked_for_again(
    objects: Objects, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: object
) -> None:
    monkeypatch.setattr(s3_objects, "PART_BYTES", 1 << 20)
    content = os.urandom((3 << 20) + 1)
    put(objects, tmp_path, content)
    s3.faults.extend([as_asked, as_asked, fault, as_asked, fault])  # type: ignore[list-item]
    assert content_of(objects, tmp_path) == content
    assert not s3.faults


def test_a_slow_upload_may_take_longer_than_an_answer_may_pause(
    objects: Objects, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_objects, "SILENCE_S_MAX", 1)
    slow = open_objects(objects.place)
    s3.faults.append(slowly)
    put(slow, tmp_path)
    assert content_of(slow, tmp_path) == b"content"
    assert sum(it.startswith("PUT") for it in s3.requests) == 1


def test_more_objects_than_a_page_of_a_list_has_are_listed(
    objects: Objects, tmp_path: Path
) -> None:
    names = {f"home/cell-1/7/{it}.index" for it in range(1_010)}
    for name in names:
        put(objects, tmp_path, b"", name)
    put(objects, tmp_path, b"", "home/cell-10/7/1.index")
    assert set(objects.names("home/cell-1")) == names
    objects.remove(names)
    assert list(objects.names("home")) == ["home/cell-10/7/1.index"]


@pytest.mark.parametrize("fault", [busy, answer_lost, request_lost])
def test_a_put_without_an_answer_is_repeated(
    objects: Objects, s3: S3, tmp_path: Path, fault: object
) -> None:
    s3.faults.extend([fault, fault])  # type: ignore[list-item]
    put(objects, tmp_path)
    assert content_of(objects, tmp_path) == b"content"
    assert s3.requests.count(f"PUT {s3.requests[0].split()[1]}") == 3


@pytest.mark.parametrize("fault", [busy, request_lost])
def test_other_calls_without_an_answer_are_repeated(
    objects: Objects, s3: S3, tmp_path: Path, fault: object
) -> None:
    put(objects, tmp_path)
    s3.faults.append(fault)  # type: ignore[arg-type]
    assert content_of(objects, tmp_path) == b"content"
    s3.faults.append(fault)  # type: ignore[arg-type]
    assert list(objects.names("home")) == [NAME]
    s3.faults.append(fault)  # type: ignore[arg-type]
    objects.remove([NAME])
    assert list(objects.names("home")) == []


def test_a_name_that_has_another_content_is_an_alarm(objects: Objects, tmp_path: Path) -> None:
    put(objects, tmp_path)
    with pytest.raises(DataCorrupted, match="is there already, with another content"):
        put(objects, tmp_path, b"something else")
    assert content_of(objects, tmp_path) == b"content"


def test_a_store_that_ignores_conditions_is_enough(
    objects: Objects, s3: S3, tmp_path: Path
) -> None:
    s3.ignores_conditions = True
    s3.faults.append(answer_lost)
    put(objects, tmp_path)
    assert content_of(objects, tmp_path) == b"content"


def test_a_store_that_knows_no_conditions_is_enough(
    objects: Objects, s3: S3, tmp_path: Path
) -> None:
    s3.faults.append(lambda *_: 501)
    put(objects, tmp_path)
    assert content_of(objects, tmp_path) == b"content"


def test_an_endpoint_without_a_scheme_is_refused(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    with pytest.raises(InvalidRequest, match="AWS_ENDPOINT_URL is 'localhost:9000'"):
        open_objects("s3://bucket/prefix")


def test_a_bucket_that_can_not_be_is_refused(s3: S3) -> None:
    for url in ("s3://b b/c", "s3://b//x/"):
        with pytest.raises(InvalidRequest, match="can't be used"):
            open_objects(url)


def test_a_store_that_is_away_is_told_within_bounds(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_objects, "REPEATED_COUNT_MAX", 1)
    objects = open_objects(f"s3://{BUCKET}/away")
    calls = (
        lambda: put(objects, tmp_path),
        lambda: content_of(objects, tmp_path),
        lambda: list(objects.names("home")),
        lambda: objects.remove([NAME]),
    )
    for call in calls:
        s3.faults.extend([busy, busy])
        with pytest.raises(Unavailable, match="The object store did not") as caught:
            call()
        assert caught.value.attributes["object_store"] == objects.place
        assert ENVIRONMENT["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
        assert "\n" not in caught.value.message
        assert not s3.faults


def test_an_object_that_is_missing_is_told_apart(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(ObjectMissing, match=NAME):
        content_of(objects, tmp_path)
    objects.remove([NAME])


def test_a_bucket_that_is_missing_is_told_at_the_start(s3: S3, tmp_path: Path) -> None:
    objects = open_objects("s3://other/prefix")
    with pytest.raises(InvalidRequest, match=r"s3://other/prefix .*Make the bucket"):
        list(objects.names("home"))
    with pytest.raises(Unavailable, match="bucket does not exist"):
        put(objects, tmp_path)


@pytest.mark.parametrize("status", [401, 403])
def test_a_user_who_may_not_is_told(objects: Objects, s3: S3, tmp_path: Path, status: int) -> None:
    s3.faults.append(lambda *_: status)
    with pytest.raises(InvalidRequest, match="the keys of a user who may use it"):
        list(objects.names("home"))
    for call in (put, content_of):
        s3.faults.append(lambda *_: status)
        with pytest.raises(Unavailable, match=f"status code: {status}"):
            call(objects, tmp_path)


def test_a_put_that_meets_another_attempt_of_itself_is_no_alarm(
    objects: Objects, s3: S3, tmp_path: Path
) -> None:
    s3.faults.append(lambda *_: 409)
    with pytest.raises(Unavailable, match="did not put"):
        put(objects, tmp_path)
    put(objects, tmp_path)
