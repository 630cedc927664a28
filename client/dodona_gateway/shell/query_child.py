"""Compute queries in a separate process: `python -m dodona_gateway.shell.query_child`.

Owns: the confinement of the process, which comes before it reads any input, and the order of a
query's two steps. The process has bounded memory, bounded processor time for each query, and can
write no file. It ends with the gateway that started it. It knows no key and no token, and opens no
socket. After a query it releases the memory that it took, or ends.
"""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from dodona._core.reading.query import Query, Source
from dodona._core.sql.engine import load_duckdb
from dodona_gateway.core.query_work import (
    LENGTH_BYTES,
    NOT_READ,
    Asked,
    Compute,
    Computed,
    Plan,
    Planned,
    Said,
    Shape,
    decode_asked,
    frame,
    refused,
    shaped,
)
from dodona_gateway.shell.console.limiting import limit_rows
from dodona_wire.errors import DodonaError, InvalidRequest, LimitExceeded
from dodona_wire.rows.schema import TableSchema
from dodona_wire.types import NULL_TIMESTAMP

FILES_MAX: Final = 64
PR_SET_PDEATHSIG: Final = 1
KEPT_BYTES_MAX: Final = 256 << 20
"""A process that took more memory for a query ends after it: the allocator would not return all
memory."""


def main() -> None:
    """Serve with the arguments `MEMORY_MIB PARENT_PID` until the standard input ends."""
    memory_mib, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    # Output of a library must not come between the answers.
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    load_duckdb()
    _confine(memory_mib)
    _serve(os.fdopen(0, "rb", closefd=False), out)


def _die_with(parent: int) -> None:
    """Make the kernel end this process when its parent ends, even by `kill -9` and even within a
    query."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the gateway has ended")


def _confine(memory_mib: int) -> None:
    """Set limits on memory, files and core dumps that this process can't raise again."""
    bytes_max = _mapped_bytes() + (memory_mib << 20)
    for name, value in (
        (resource.RLIMIT_AS, bytes_max),
        (resource.RLIMIT_DATA, bytes_max),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES_MAX),
    ):
        hard = resource.getrlimit(name)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (bound, bound))
    with suppress(OSError):  # if memory is short, the kernel ends this process first
        Path("/proc/self/oom_score_adj").write_text("1000")


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _grant_cpu(seconds: int) -> None:
    """Allow so many seconds of processor time from now on. After them the kernel ends the
    process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, hard))


def _serve(come: BinaryIO, out: Any) -> None:
    work = _Work()
    while (content := _read(come)) is not None:
        said = work.answer(decode_asked(content), come)
        if not isinstance(said, Planned) and _peak_bytes() > KEPT_BYTES_MAX:
            _write(out, frame(msgspec.structs.replace(said, is_last=True)))
            return
        _write(out, frame(said))


def _peak_bytes() -> int:
    """Return the peak memory of this program. `getrusage` would include the program that started
    it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


class _Work:
    """The queries of this process, one after the other."""

    def __init__(self) -> None:
        self._query: Query | None = None
        self._plan: Plan | None = None

    def answer(self, asked: Asked, come: BinaryIO) -> Said:
        """Return the answer to one request. If there is no memory to read its data, the process
        ends."""
        sources = []
        if isinstance(asked, Compute):
            sources = [_read_source(come, count) for count in asked.batch_counts]
        try:
            if isinstance(asked, Plan):
                return self._begin(asked)
            return self._compute(asked.shape, sources)
        except DodonaError as error:
            return refused(error)
        except MemoryError:
            return refused(self._out_of_memory())

    def _begin(self, asked: Plan) -> Planned:
        self._query, self._plan = None, asked
        _grant_cpu(asked.cpu_seconds_max)
        query = self._planned(asked)
        self._query = query
        return Planned([it.wanted for it in query.sources])

    def _planned(self, asked: Plan) -> Query:
        if asked.rows_max is not None:
            text = limit_rows(asked.text, asked.rows_max)
            try:
                return _plan(asked, text)
            except LimitExceeded:
                raise
            except InvalidRequest:  # the error must describe the text of the caller
                if text == asked.text:
                    raise
        return _plan(asked, asked.text)

    def _compute(self, shape: Shape, data: list[Any]) -> Computed:
        query, self._query = self._query, None
        assert query is not None, "a query is planned once, before it is computed"
        for source, its in zip(query.sources, data, strict=True):
            source.data = its
        data.clear()
        bytes_max = query.limits.result_bytes_max
        assert bytes_max is not None, "the size of a result is bounded"
        return Computed(shaped(query.answer(), shape, bytes_max))

    def _out_of_memory(self) -> DodonaError:
        self._query = None
        mib = 0 if self._plan is None else self._plan.limits.memory_mib_max
        return LimitExceeded(
            f"The query needs more than {mib} MiB. Query fewer rows or columns.",
            memory_mib_max=mib,
        )


def _plan(asked: Plan, text: str) -> Query:
    sources = [Source(it.path, TableSchema(it.columns), NULL_TIMESTAMP) for it in asked.tables]
    query = Query(text, sources, asked.limits, parameters=asked.parameters)
    query.plan()
    return query


def _read(come: BinaryIO) -> bytes | None:
    length = come.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    return come.read(int.from_bytes(length, "little"))


def _read_source(come: BinaryIO, batch_count: int) -> Any:
    if batch_count == NOT_READ:
        return None
    import pyarrow.ipc

    schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(_read(come)))
    batches = [
        pyarrow.ipc.read_record_batch(pyarrow.py_buffer(_read(come)), schema)
        for _ in range(batch_count)
    ]
    return pyarrow.Table.from_batches(batches, schema)


def _write(out: Any, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[out.write(rest) :]


if __name__ == "__main__":
    main()
