"""Copies of logs, as a cluster tells of them: beside its servers, and one by one."""

import json
from collections.abc import Callable
from typing import Any

from unit.cli.test_status import CELLS, COUNTED, HEALTHY, MASTER, Page, look, run, serve, without

__all__ = ["serve"]

REPLICAS = [f"http://replica-{it}:1" for it in range(4)]
AWAY_US = 75_000_000


def copy(number: int, role: str = "member", **fields: Any) -> dict[str, Any]:
    return {"address": REPLICAS[number], "role": role, "replica": f"id-{number}", **fields}


def report(*replicas: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "log": "cell-0",
        "owner": "node-0/0123456789abcdef",
        "epoch": 7,
        "is_serving": True,
        "wanted_count": 3,
        "copies_min": 2,
        "replicas": replicas,
        **fields,
    }


SOUND = report(copy(0), copy(1), copy(2), copy(3, "spare"))
SHORT = report(copy(0), copy(1), copy(2, "spare", silent_us=AWAY_US))


def pages(first: dict[str, Any] = SOUND, second: dict[str, Any] = SOUND) -> dict[str, Page]:
    found = dict(HEALTHY)
    for cell, told in enumerate((first, second)):
        found[f"http://node-{cell}:1/v1/statistics"] = 200, {"cell": COUNTED, "copies": told}
    for address in REPLICAS:
        found[f"{address}/readyz"] = 200, {"status": "ready"}
        found[f"{address}/v1/statistics"] = 200, {"replica": {"is_full": False}}
    return found


def test_the_replicas_are_servers_of_the_cluster(serve: Callable[..., None]) -> None:
    serve(pages())
    done = run("cluster", "status", "--format", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [it["part"] for it in found[4:]] == ["replica"] * 4
    assert [it["address"] for it in found[4:]] == REPLICAS
    cell = found[2]
    assert (cell["epoch"], cell["copies"]) == (7, "3 of 3 copies")
    assert cell["owner"] == "node-0/0123456789abcdef"
    assert found[0]["copies"] is None


def test_without_copies_the_status_is_as_before(serve: Callable[..., None]) -> None:
    serve(HEALTHY)
    heading = run("cluster", "status").stdout.splitlines()[0].split()
    assert heading[-2:] == ["committed", "address"]
    done = run("cluster", "copies", "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])


def test_a_replica_that_is_away_is_named(serve: Callable[..., None]) -> None:
    told = {url: it for url, it in pages(SHORT).items() if not url.startswith(REPLICAS[2])}
    serve(told)
    code, parts = look()
    assert code == 1, "a server does not answer"
    assert parts["cell 0"]["state"] == "ready"
    assert parts["cell 0"]["copies"] == f"2 of 3 copies: {REPLICAS[2]} has not answered for 75 s"


def test_a_full_replica_is_not_ready(serve: Callable[..., None]) -> None:
    full = {f"{REPLICAS[3]}/v1/statistics": (200, {"replica": {"is_full": True}})}
    serve({**pages(), **full})
    code, parts = look()
    assert code == 1
    assert "it has no space for new entries" in parts["replica"]["state"], "the last one"


def test_a_cell_that_waits_for_copies_says_which(serve: Callable[..., None]) -> None:
    """A node that is not ready has a page all the same."""
    waits = report(copy(0), copy(1, silent_us=AWAY_US), copy(2, silent_us=AWAY_US))
    reason = "the log of this cell has 2 copies and needs 2"
    serve({**pages(waits), "http://node-0:1/readyz": (503, {"status": reason})})
    code, parts = look()
    assert (code, parts["cell 0"]["state"]) == (1, reason)
    assert parts["cell 0"]["copies"].startswith("1 of 3 copies: the cell waits, since it needs 2; ")
    assert parts["cell 0"]["rows"] is None, "as of any server that is not ready"


def test_a_member_without_an_address_is_no_server(serve: Callable[..., None]) -> None:
    lost = {"address": "0123", "role": "member", "replica": "0123"}
    serve(pages(report(copy(0), copy(1), lost)))
    assert "0123" not in {it["address"] for it in look()[1].values()}


def test_copies_are_listed_one_by_one(serve: Callable[..., None]) -> None:
    lags = copy(1, lag_entries=12, lag_us=2_500_000, silent_us=3_000)
    strange = {"address": REPLICAS[3], "role": "unknown", "reason": "no answer"}
    serve(pages(report(copy(0), lags, copy(2), strange)))
    done = run("cluster", "copies", "--format", "json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [it["cell"] for it in found] == [0] * 4 + [1] * 4
    assert found[1] == {
        "cell": 0,
        "epoch": 7,
        "owner": "node-0/0123456789abcdef",
        "role": "member",
        "lag_entries": 12,
        "lag_ms": 2_500,
        "silent_ms": 3,
        "replica": "id-1",
        "address": REPLICAS[1],
        "reason": "",
    }
    assert (found[3]["role"], found[3]["reason"]) == ("unknown", "no answer")


def test_a_cell_that_can_not_be_asked_is_named(serve: Callable[..., None]) -> None:
    told = pages()
    serve({url: it for url, it in told.items() if not url.startswith("http://node-1")})
    done = run("cluster", "copies", "--format", "json")
    assert done.exit_code == 3
    assert {it["cell"] for it in json.loads(done.stdout)} == {0}
    assert "cell 1 can't be asked: no answer from http://node-1:1" in done.stderr
    cells = [CELLS[0], {**CELLS[1], "address": "", "is_alive": False}]
    cluster = {"proxies": ["http://proxy:1"], "cells": cells}
    serve({**told, "http://master:1/v1/cluster": (200, cluster)})
    done = run("cluster", "copies")
    assert "has admitted no node of this cell" in done.stderr
    serve(without(MASTER))
    assert run("cluster", "copies").exit_code == 3


def test_the_nodes_that_stand_by_are_servers_of_the_cluster(serve: Callable[..., None]) -> None:
    """Only the log replicas know them: they ask no other server anything."""
    waiting = {"replica": {"is_full": False}, "candidates": ["http://b:1", "http://a:1"]}
    more = {f"{it}/v1/statistics": (200, waiting) for it in REPLICAS[:2]}
    serve({**pages(), **more, "http://a:1/readyz": (200, {"status": "ok"})})
    done = run("cluster", "status", "--format", "json")
    found = [it for it in json.loads(done.stdout) if it["part"] == "standby"]
    assert [(it["address"], it["state"] == "ready") for it in found] == [
        ("http://a:1", True),
        ("http://b:1", False),
    ]
    assert done.exit_code == 1, "one of them does not answer"
