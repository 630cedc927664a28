"""Rows through YTsaurus's real client and a gateway, beside Dodona's own client without one."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import dodona
from dodona_loadtest.harness.errors import ContenderFailed, client_library
from dodona_loadtest.harness.study import (
    Effort,
    Figures,
    Measure,
    Performance,
    Performer,
    Story,
    Study,
)
from dodona_loadtest.peers.dodona import version
from dodona_local.launcher import LocalCluster

ROWS: Final = 10_000
PATH: Final = "//bench/rows"
SCHEMA: Final = (
    {"name": "k", "type": "int64", "sort_order": "ascending"},
    {"name": "s", "type": "string"},
    {"name": "d", "type": "double"},
    {"name": "u", "type": "uint64"},
)

INSERT: Final = "insert of 10,000 rows"
LOOKUP: Final = "lookup of 10,000 rows"
SELECT: Final = "select of 10,000 rows"
ONE: Final = "insert of 1 row"

Row = dict[str, Any]
Write = Callable[[list[Row]], Any]
Read = Callable[[], list[Any]]


class _Sides:
    """One client, as three calls."""

    def __init__(self, insert: Write, look_up: Read, select: Read) -> None:
        self.insert = insert
        self.look_up = look_up
        self.select = select


def _rows(count: int) -> list[Row]:
    return [{"k": k, "s": f"row number {k:08}", "d": k / 3, "u": k} for k in range(count)]


def _perform(sides: _Sides, rows: list[Row], measure_s: float, number: int) -> Figures:
    return {
        INSERT: _rate(partial(sides.insert, rows), len(rows), measure_s),
        LOOKUP: _rate(partial(_read, sides.look_up, rows), len(rows), measure_s),
        SELECT: _rate(partial(_read, sides.select, rows), len(rows), measure_s),
        ONE: 1e6 / _rate(partial(sides.insert, rows[:1]), 1, measure_s),
    }


def _read(read: Read, rows: list[Row]) -> None:
    found = read()
    if len(found) != len(rows) or dict(found[-1]) != rows[-1]:
        raise ContenderFailed(f"{len(found)} rows came back of {len(rows)}, or others")


def _rate(call: Callable[[], Any], count: int, measure_s: float) -> float:
    """Return rows a second, after one unmeasured call."""
    call()
    began = time.perf_counter()
    done = 0
    while (elapsed := time.perf_counter() - began) < measure_s or not done:
        call()
        done += count
    return done / elapsed


@contextmanager
def _cluster(folder: Path) -> Iterator[LocalCluster]:
    with LocalCluster(folder, node_count=1, gateway_count=1, is_insecure=True) as cluster:
        with dodona.connect(cluster.master_url) as db:
            db.create_table(PATH, SCHEMA, mount=True)
        yield cluster


@contextmanager
def _own(folder: Path, effort: Effort) -> Iterator[Performance]:
    rows = _rows(effort.share(ROWS))
    keys = [{"k": row["k"]} for row in rows]
    with _cluster(folder) as cluster, dodona.connect(cluster.master_url) as db:
        sides = _Sides(
            partial(db.insert_rows, PATH),
            lambda: _texts(db.lookup_rows(PATH, keys)),
            lambda: _texts(db.select(PATH)),
        )
        yield Performance(version(), partial(_perform, sides, rows, effort.measure_s))


def _texts(rows: Iterable[Row]) -> list[Row]:
    """Return rows as the other clients return them: strings are text."""
    return [{**row, "s": row["s"].decode()} for row in rows]


def _real(configure: Callable[[Any], dict[str, Any]]) -> Story:
    """Return the story through `ytsaurus-client` with this configuration."""

    @contextmanager
    def story(folder: Path, effort: Effort) -> Iterator[Performance]:
        yt = client_library("yt.wrapper")
        client_library("yt.logger").LOGGER.setLevel(logging.CRITICAL)
        rows = _rows(effort.share(ROWS))
        keys = [{"k": row["k"]} for row in rows]
        with _cluster(folder) as cluster:
            config = {"enable_token": False, **configure(yt)}
            client = yt.YtClient(proxy=cluster.gateway_urls[0], config=config)
            query = f"* from [{PATH}]"
            sides = _Sides(
                partial(client.insert_rows, PATH),
                lambda: list(client.lookup_rows(PATH, keys)),
                lambda: list(client.select_rows(query)),
            )
            about = f"ytsaurus-client {client_library('yt.wrapper.version').VERSION}"
            yield Performance(about, partial(_perform, sides, rows, effort.measure_s))

    return story


def _yson(encoding: str) -> Callable[[Any], dict[str, Any]]:
    return lambda yt: {"proxy": {"content_encoding": encoding}}


def _json(yt: Any) -> dict[str, Any]:
    return {
        "proxy": {"content_encoding": "identity"},
        "structured_data_format": yt.JsonFormat(encoding="utf-8"),
        "tabular_data_format": yt.JsonFormat(control_attributes_mode="none", encoding="utf-8"),
    }


STUDY: Final = Study(
    name="ytsaurus",
    title="Rows of four columns through the real ytsaurus-client and a gateway: one caller",
    fairness=(
        "Every client runs in this process, with one caller that waits for each answer; rows are "
        "dicts on both ends. Dodona's own client speaks to the node without a gateway, and without "
        "text or compression: what it is faster by, the detour costs. The real client is measured "
        "with binary YSON as it is, packed by gzip, and with JSON."
    ),
    warms_up=True,
    performers=(
        Performer("Dodona", _own),
        Performer("YSON", _real(_yson("identity"))),
        Performer("YSON, gzip", _real(_yson("gzip"))),
        Performer("JSON", _real(_json)),
    ),
    measures=(
        Measure(INSERT, "rows/s"),
        Measure(LOOKUP, "rows/s"),
        Measure(SELECT, "rows/s"),
        Measure(ONE, "µs"),
    ),
)
