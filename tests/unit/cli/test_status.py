"""A cluster as its pages tell it: whoever is silent is named, and is no reason to stop asking."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from dodona_local import status
from dodona_local.cli import application

Page = tuple[int, Any]

MASTER = "http://master:1"
SERVER = {"server": "dodona/1.2.3"}
CELLS = [
    {"cell": 0, "address": "http://node-0:1", "is_alive": True, "tablet_count": 3},
    {"cell": 1, "address": "http://node-1:1", "is_alive": True, "tablet_count": 4},
]
COUNTED = {
    "tablets": 3,
    "rows": 10,
    "transactions_alive": 2,
    "transactions_prepared": 1,
    "committed": 99,
    "and_more": {},
}
DOUBT = {
    "transaction": 7,
    "coordinator": 1,
    "participants": [1, 0],
    "prepare_timestamp": 9,
    "age_ms": 1500,
}
HEALTHY: dict[str, Page] = {
    "http://master:1/readyz": (200, {"status": "ready"}),
    "http://master:1/v1/cluster": (200, {"proxies": ["http://proxy:1"], "cells": CELLS}),
    "http://proxy:1/readyz": (200, {"status": "ready"}),
    **{
        f"http://node-{cell}:1{path}": (200, page)
        for cell in (0, 1)
        for path, page in {
            "/readyz": {"status": "ok"},
            "/v1/statistics": {"cell": COUNTED},
            "/v1/in-doubt": {"count": 0, "transactions": []},
        }.items()
    },
}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def begin(pages: dict[str, Page]) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            if str(request.url) not in pages:
                raise httpx.ConnectError("connection refused")
            code, page = pages[str(request.url)]
            content = page if isinstance(page, bytes) else json.dumps(page).encode()
            return httpx.Response(code, content=content, headers=SERVER)

        monkeypatch.setattr(
            status, "_http", lambda url: httpx.Client(transport=httpx.MockTransport(answer))
        )

    return begin


def run(*words: str) -> Result:
    return CliRunner().invoke(application, [*words, "--url", MASTER])


def parts_of(done: Result) -> dict[str, Any]:
    return {it["part"]: it for it in json.loads(done.stdout)}


def look() -> tuple[int, dict[str, Any]]:
    done = run("cluster", "status", "--format", "json")
    return done.exit_code, parts_of(done)


def test_a_sound_cluster_is_ready(serve: Callable[..., None]) -> None:
    serve(HEALTHY)
    code, parts = look()
    assert (code, list(parts)) == (0, ["master", "proxy", "cell 0", "cell 1"])
    assert {it["state"] for it in parts.values()} == {"ready"}
    assert {it["version"] for it in parts.values()} == {"1.2.3"}
    cell = parts["cell 0"]
    assert (cell["tablets"], cell["rows"], cell["prepared"], cell["committed"]) == (3, 10, 1, 99)
    assert cell["address"] == "http://node-0:1"
    heading, *lines = run("cluster", "status").stdout.splitlines()
    assert heading.split()[:3] == ["part", "state", "version"]
    assert len(lines) == 4


def without(*urls: str, **pages: Page) -> dict[str, Page]:
    return {url: page for url, page in HEALTHY.items() if not url.startswith(urls)}


def test_a_silent_master_is_all_there_is_to_say(serve: Callable[..., None]) -> None:
    serve(without(MASTER))
    code, parts = look()
    assert (code, list(parts)) == (1, ["master"])
    assert parts["master"]["state"] == "no answer from http://master:1: connection refused"
    assert run("transactions", "in-doubt").exit_code == 3


def test_status_names_a_server_that_is_not_a_dodona_master(serve: Callable[..., None]) -> None:
    serve({**HEALTHY, "http://master:1/v1/cluster": (200, b"<html>")})
    code, parts = look()
    assert code == 1
    assert "does not come from a Dodona master" in parts["master"]["state"]
    serve({**HEALTHY, "http://master:1/readyz": (404, b"<html>")})
    assert look()[1]["master"]["state"] == "it answers with HTTP status 404"


def test_status_shows_why_a_part_of_the_cluster_is_not_ready(serve: Callable[..., None]) -> None:
    problem = {"status": 503, "detail": "the disk hangs", "kind": "unavailable"}
    lost = [CELLS[0], {**CELLS[1], "is_alive": False}]
    serve(
        {
            **HEALTHY,
            "http://proxy:1/readyz": (503, problem),
            "http://node-0:1/readyz": (503, {"status": "waiting for the oracle"}),
            "http://master:1/v1/cluster": (200, {"proxies": ["http://proxy:1"], "cells": lost}),
        }
    )
    code, parts = look()
    assert code == 1
    assert {name: it["state"] for name, it in parts.items()} == {
        "master": "ready",
        "proxy": "the disk hangs",
        "cell 0": "waiting for the oracle",
        "cell 1": "the master does not hear from it",
    }
    assert parts["cell 0"]["tablets"] == 3, "as the master knows it"


def test_a_cell_that_never_joined_is_no_bad_address(serve: Callable[..., None]) -> None:
    """It said that a URL has no protocol."""
    cells = [CELLS[0], {**CELLS[1], "address": "", "is_alive": False}]
    cluster = {"proxies": ["http://proxy:1"], "cells": cells}
    serve({**HEALTHY, "http://master:1/v1/cluster": (200, cluster)})
    code, parts = look()
    assert code == 1
    assert "has admitted no node of this cell" in parts["cell 1"]["state"]


def test_status_names_a_cell_that_does_not_answer(serve: Callable[..., None]) -> None:
    serve(without("http://node-1"))
    code, parts = look()
    assert code == 1
    assert parts["cell 1"]["state"].startswith("no answer from http://node-1:1")
    assert parts["cell 0"]["state"] == "ready"


def test_statistics_of_another_kind_are_left_out(serve: Callable[..., None]) -> None:
    serve({**HEALTHY, "http://node-0:1/v1/statistics": (200, b"[]")})
    code, parts = look()
    assert (code, parts["cell 0"]["rows"], parts["cell 0"]["tablets"]) == (0, None, 3)


def test_the_list_of_in_doubt_transactions_covers_all_cells_that_answer(
    serve: Callable[..., None],
) -> None:
    older = {**DOUBT, "transaction": 5}
    pages = {
        **HEALTHY,
        "http://node-0:1/v1/in-doubt": (200, {"count": 2, "transactions": [DOUBT]}),
        "http://node-1:1/v1/in-doubt": (200, {"count": 1, "transactions": [older]}),
    }
    serve(pages)
    done = run("transactions", "in-doubt", "--format", "json")
    assert done.exit_code == 0
    assert [(it["transaction"], it["cell"]) for it in json.loads(done.stdout)] == [(5, 1), (7, 0)]
    assert json.loads(done.stdout)[1] == {"cell": 0, **DOUBT}
    for answer in ((404, {"detail": "Not Found"}), (200, b"{}")):
        serve({**pages, "http://node-1:1/v1/in-doubt": answer})
        done = run("transactions", "in-doubt", "--format", "json")
        assert (done.exit_code, len(json.loads(done.stdout))) == (3, 1)
        assert done.stderr.startswith("dodona: cell 1 can't be asked: ")


def test_a_url_that_is_none_is_refused() -> None:
    for words in (("cluster", "status"), ("transactions", "in-doubt")):
        done = CliRunner().invoke(application, [*words, "--url", "ftp://x"])
        assert (done.exit_code, done.stdout) == (1, "")
        assert "the master's URL is like" in done.stderr


def test_after_a_while_no_further_server_is_asked() -> None:
    """Each silent server takes seconds, and there may be thousands of them."""
    refuse = status._bounded(0.0)
    with pytest.raises(httpx.ConnectTimeout, match="it was not asked"):
        refuse(httpx.Request("GET", "http://node:1/readyz"))
    status._bounded(float("inf"))(httpx.Request("GET", "http://node:1/readyz"))
