"""A limit of address space (`ulimit -v`) that is too low: said, with the limit, before any harm.

A report of the same kind elsewhere: jnwatson/py-lmdb #225.
"""

import mmap
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

import dodona
from dodona.errors import InvalidRequest
from dodona_oracle.core.records import Put
from dodona_oracle.shell import store
from dodona_oracle.shell.store import MasterStore
from dodona_server.address_space import map_to_read
from dodona_server.environment import make_environment, open_environment
from dodona_server.page_tree import check_pages
from dodona_tablets.shell.log import CellLog

LOG_BYTES = 1 << 30
MAP_BYTES = 1 << 34
LEFT_BYTES = 1 << 30
"""Far less than a log is mapped by, far more than anything else takes."""


@contextmanager
def little_address_space() -> Iterator[int]:
    """→ the limit. It binds all of this process, whose other threads have enough left."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * mmap.PAGESIZE + LEFT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def open_log(folder: Path) -> object:
    return CellLog.open(folder / "log", LOG_BYTES)


def make_file(folder: Path) -> object:
    make_environment(folder / "made", MAP_BYTES, [(b"key", b"value")])
    return None


def open_file(folder: Path) -> object:
    return open_environment(folder / "file", MAP_BYTES)


def open_embedded(folder: Path) -> object:
    return dodona.open(folder / "db")


WAYS: list[Callable[[Path], object]] = [open_embedded, open_log, make_file, open_file]


@pytest.mark.parametrize("way", WAYS)
def test_an_address_space_error_names_the_limit_and_the_remedy(
    tmp_path: Path, way: Callable[[Path], object]
) -> None:
    with (
        little_address_space() as limit,
        pytest.raises(InvalidRequest, match="ulimit -v unlimited") as caught,
    ):
        way(tmp_path)
    assert caught.value.attributes["limit_bytes"] == limit
    assert caught.value.attributes["needed_bytes"] == MAP_BYTES
    assert f"the limit of this process is {limit >> 20} MiB" in caught.value.message


def test_a_database_that_could_not_be_opened_is_whole_afterwards(tmp_path: Path) -> None:
    with dodona.open(tmp_path) as db:
        stamp = db.generate_timestamp()
    with little_address_space(), pytest.raises(InvalidRequest, match="address space"):
        dodona.open(tmp_path)
    with dodona.open(tmp_path) as db:
        assert db.generate_timestamp() > stamp


def test_a_store_that_can_grow_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAP_BYTES_FIRST", 1 << 20)
    opened = MasterStore.open(tmp_path, map_bytes_max=MAP_BYTES)
    monkeypatch.setattr(opened, "_environment", Grown(opened._environment))
    with little_address_space(), pytest.raises(InvalidRequest, match="address space"):
        opened.append([Put("bucket", b"key", bytes(2 << 20))])
    opened.close()


class Grown:
    """An environment that grows by more than the process may have."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment

    def set_mapsize(self, _: int) -> None:
        self._environment.set_mapsize(MAP_BYTES)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


def map_all(path: Path) -> None:
    with path.open("rb") as file:
        map_to_read(file, path)


@pytest.mark.parametrize("read", [check_pages, map_all])
def test_files_that_are_mapped_to_be_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(MAP_BYTES)
    with little_address_space(), pytest.raises(InvalidRequest, match="16384 MiB more"):
        read(path)


def test_without_an_address_space_limit_the_error_names_the_system_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with little_address_space():
        monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
        with pytest.raises(InvalidRequest, match=r"vm\.max_map_count"):
            open_log(tmp_path)
        monkeypatch.undo()
