"""Five hundred callers that send or read as slowly as they can: each is gone by its deadline, and
meanwhile everybody else is answered."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from dodona_gateway.core.content import TYPES
from dodona_loadtest.peers.slow_caller import HEADERS, SlowCaller, request
from dodona_local.launcher import LocalCluster
from dodona_local.supervisor import Plan
from integration.gateway.rest import Rest
from integration.gateway.test_fuzz import resident_mib

pytestmark = [
    pytest.mark.integration,
    pytest.mark.alone,  # everybody has a deadline
]

SECONDS: Final = {"header": 3, "request": 8, "stream": 8, "stream-idle": 4}
"""For each of them, in place of the settings' minutes."""
SLACK_S: Final = 20
"""A busy machine is late; without deadlines they would stay for as long as they drip."""
COUNT_OF_EACH: Final = 100
DRIP_S: Final = 0.25
"""At this pace a whole answer takes half an hour; what is in a socket's buffer, seconds."""
ANSWERS_MIB_MAX: Final = 64
GROWTH_MIB_MAX: Final = 450
"""With sixteen streams. Without a bound on answers it is more than 500."""
TABLE: Final = "//slow/t"
SCHEMA: Final = [
    {"name": "id", "type": "int64", "sort_order": "ascending"},
    {"name": "text", "type": "utf8"},
]
SELECT: Final = b'{"table": "//slow/t"}'
LINE: Final = b'{"id": 1, "text": "x"}\n'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder: Path = tmp_path_factory.mktemp("slow")

    def arrange(plans: list[Plan]) -> list[Plan]:
        return [impatient(it) if it.module == "dodona_gateway" else it for it in plans]

    with LocalCluster(
        folder / "data", node_count=1, gateway_count=1, is_insecure=True, arrange=arrange
    ) as running:
        with Rest(running.gateway_urls[0]) as rest:
            rest("create_table", path=TABLE, schema=SCHEMA, mount=True)
            rows = [{"id": it, "text": "x" * 65_536} for it in range(64)]  # 4 MB
            rest("insert_rows", table=TABLE, rows=rows)
        yield running


def impatient(plan: Plan) -> Plan:
    for name, seconds in SECONDS.items():
        plan = plan.with_option(f"--{name}-seconds-max", str(seconds))
    return plan.with_option("--answers-mib-max", str(ANSWERS_MIB_MAX))


JSON: Final = f"content-type: {TYPES['json']}"
NDJSON: Final = f"content-type: {TYPES['ndjson']}"
CHUNKED: Final = "transfer-encoding: chunked"
LAST: Final = "connection: close"
"""Who was refused and keeps the connection is idle, and no slow caller."""
HABITS: Final[dict[str, tuple[bytes, bytes | None]]] = {
    "headers": (HEADERS, b"x"),
    "bodies": (request("POST", "/v1/rows/lookup", JSON, "content-length: 100000"), b" "),
    "streams in": (
        request("POST", f"/v1/bulk/write?table={TABLE}", NDJSON, CHUNKED),
        b"%x\r\n%s\r\n" % (len(LINE), LINE),
    ),
    "answers": (
        request("POST", "/v1/rows/select", JSON, LAST, f"content-length: {len(SELECT)}") + SELECT,
        None,
    ),
    "streams out": (request("GET", f"/v1/bulk/read?table={TABLE}", LAST), None),
}


def place_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


async def all_of(callers: list[SlowCaller], meanwhile: Callable[[], Awaitable[int]]) -> int:
    """→ how many good requests were answered until the last slow one was gone."""
    slow = asyncio.gather(*[it.run() for it in callers])
    answered = 0
    while not slow.done():
        answered += await meanwhile()
    await slow
    return answered


def test_all_are_gone_by_their_deadline_and_others_are_answered(cluster: LocalCluster) -> None:
    (url,) = cluster.gateway_urls
    place = place_of(url)
    pid = cluster.processes["gateway"].pid
    assert pid is not None
    callers = {
        name: [SlowCaller(place, begin, drop, DRIP_S) for _ in range(COUNT_OF_EACH)]
        for name, (begin, drop) in HABITS.items()
    }
    with Rest(url) as rest:
        before_mib = resident_mib(pid)
        peaks = [before_mib]

        def ask() -> int:
            keys = [{"id": 7}]
            found = rest("lookup_rows", table=TABLE, keys=keys, columns=["id"])
            assert found == {"rows": keys}
            rest("insert_rows", table=TABLE, rows=[{"id": -1, "text": ""}])
            peaks.append(resident_mib(pid))
            return 1

        async def meanwhile() -> int:
            return await asyncio.to_thread(ask)

        everybody: list[Any] = [it for its in callers.values() for it in its]
        assert len(everybody) == 500
        answered = asyncio.run(all_of(everybody, meanwhile))
        lasted = {name: max(it.lasted_s for it in its) for name, its in callers.items()}
        print({name: round(it, 1) for name, it in lasted.items()}, answered, round(max(peaks)))
        assert max(lasted.values()) < max(SECONDS.values()) + SLACK_S
        assert answered > 10
        assert max(peaks) - before_mib < GROWTH_MIB_MAX
        assert cluster.processes["gateway"].pid == pid
        ask()


def test_bodies_that_come_slowly_take_no_place_that_others_need(cluster: LocalCluster) -> None:
    (url,) = cluster.gateway_urls
    begin, drop = HABITS["bodies"]
    callers = [SlowCaller(place_of(url), begin, drop, DRIP_S) for _ in range(600)]
    with Rest(url) as rest:

        def ask() -> int:
            found = rest("lookup_rows", table=TABLE, keys=[{"id": 7}], columns=["id"])
            assert found == {"rows": [{"id": 7}]}
            return sum(it.is_open for it in callers)

        async def meanwhile() -> int:
            opened.append(await asyncio.to_thread(ask))
            return 1

        opened: list[int] = []
        answered = asyncio.run(all_of(callers, meanwhile))
        assert max(opened) > 550
        assert answered > 10
