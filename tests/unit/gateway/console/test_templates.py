"""Every template with everything that it can show: nothing is missing, and all of it is escaped."""

from html.parser import HTMLParser
from typing import Any, Final

import pytest
from msgspec.structs import replace

from dodona._core.loads.records import LoadPhase, LoadRecord, LoadRecovery
from dodona.errors import InvalidRequest, Unavailable
from dodona.types import CellId, LoadId, TabletId, Timestamp, TransactionId
from dodona_gateway.core.access.grants import Grant
from dodona_gateway.core.access.principal import Principal
from dodona_gateway.core.console.chart import chart_of
from dodona_gateway.core.console.cluster import Stuck, map_cells, merge_doubts
from dodona_gateway.core.console.history import Point
from dodona_gateway.core.console.replicas import replica_lines
from dodona_gateway.core.console.server_pages import (
    CellCounts,
    Doubt,
    DoubtPage,
    MasterCounts,
    OpenTransaction,
    ProxyCounts,
    ReplicaCounts,
    ReportedCluster,
    ReportedTablets,
    Server,
    StartOf,
    StatisticsPage,
    TabletCounts,
    TabletsPage,
)
from dodona_gateway.core.transaction_id import HeldId
from dodona_gateway.shell.console.observing import ReportedLoads
from dodona_gateway.shell.console.query_page import Result
from dodona_gateway.shell.console.rendering import described, render
from dodona_gateway.shell.transactions import HeldView
from dodona_wire.cores.copies import CopiesReport, ReplicaState
from dodona_wire.cores.recoveries import Recovery, TakenOver

EVIL: Final = """<script>alert('x')</script>"><img src=x onerror=alert(1)>"""
ANN: Final = Principal(EVIL, "0" * 16, (Grant.of("admin", "/"),))
AT: Final = Timestamp(1_914_382_028_950_732_800)
ZERO, ONE = CellId(0), CellId(1)

COMMITS: Final = {"blind": {"committed": 9, "conflict": 3}}
CELL: Final = StatisticsPage(
    cell=CellCounts(1, 2, 3, 4, 1, commits=COMMITS, last_failure=EVIL, memory_bytes=10),
    log_bytes=100,
    log_fill_ratio=0.8,
)
COPIES: Final = CopiesReport(
    owner=EVIL,
    epoch=7,
    is_serving=True,
    wanted_count=3,
    copies_min=2,
    replicas=(
        ReplicaState("http://r0", "member", "r0", lag_entries=1_234),
        ReplicaState("r1", "member", "r1"),
        ReplicaState(f"http://{EVIL}", "learner", EVIL, silent_us=90_000_000),
    ),
)
REPLICA: Final = StatisticsPage(replica=ReplicaCounts(log_count=4))
REPORTED: Final = ReportedCluster(
    1_782_907_200_000_000,
    (
        Server("master", "m", "ready", "", "0.1.0", None, StatisticsPage(master=MasterCounts(9))),
        Server("proxy", "p", "waiting", EVIL, "", None, StatisticsPage(proxy=ProxyCounts(3, 2))),
        Server("proxy", EVIL, "silent", "refused"),
        Server("cell", "a", "ready", "", "0.1.0", ZERO, CELL),
        Server("cell", "b", "silent", EVIL, "", ONE),
        Server("cell", "c", "lost", "not heard", "", CellId(2), CELL),
    ),
    EVIL,
)
TABLETS: Final = {
    ZERO: ReportedTablets(
        1_782_907_199_000_000, TabletsPage(20_000, (TabletCounts(TabletId(1), "//t", "mounted"),))
    ),
    ONE: ReportedTablets(
        1_782_907_190_000_000, TabletsPage(1, (TabletCounts(TabletId(2), "//hidden", "frozen"),))
    ),
}
TAKEN: Final = TakenOver(TransactionId(AT), ZERO, (ZERO, ONE), "prepared", "committed", AT, 70)
OPEN: Final = TakenOver(TransactionId(AT), ZERO, (ZERO, ONE), "committed")
LOAD: Final = LoadId(AT)
STATES: Final[tuple[LoadPhase, ...]] = ("running", "publishing", "published", "finished", "aborted")
LOADS: Final = ReportedLoads(
    tuple(
        LoadRecord(LoadId(id), state, ("//t",), "upsert", EVIL, 1, None, None, 5, None, AT, EVIL)
        for id, state in enumerate(STATES, LOAD)
    ),
    (
        LoadRecovery(LOAD, "rolled_forward", "published", EVIL, ("//t",), EVIL),
        LoadRecovery(LoadId(LOAD + 1), "rolled_back", "running", "", ("//t",), "expired"),
    ),
    True,
)
STARTS: Final = [
    StartOf(REPORTED.servers[0], Recovery(1, 2, "nothing", transaction_count=2), True),
    StartOf(REPORTED.servers[3], Recovery(1, 2, "stop", 5, 6, 7, 8, 9, stopped_us=5), False),
    StartOf(REPORTED.servers[3], Recovery(2, 2, "unknown"), False),
    StartOf(
        REPORTED.servers[4],
        Recovery(1, 2, "crash", transaction_count=2, transactions=(TAKEN, OPEN), loads=(LOAD,)),
        True,
    ),
]
HELD: Final = [HeldView(HeldId(AT, "full", 1, it), EVIL, 30_000, 5, 6, bool(it)) for it in (0, 1)]
COMMON: Final = {"reported": REPORTED, "problem": None}
SUMS: Final = {"cells": 3, "cells_heard": 2, "tablets": 2, "memory_bytes": 3, "chunk_bytes": 4}
CLUSTER: Final = {
    **COMMON,
    "charts": [chart_of("commits", "Commits", "per second", [Point(9, 1.0), Point(2, None)])],
    "cells": map_cells(REPORTED, TABLETS, lambda path: path == "//t"),
    "replicas": (),
    "rates": {"timestamps": 1.0, "commits": None, "conflicts": 0.0},
    "stuck": Stuck(2, True, 1),
    "sums": SUMS,
    "gateway": EVIL,
    "held_count": 1,
}
DOUBTS: Final = {ZERO: DoubtPage(9, (Doubt(TransactionId(AT), ONE, (ONE, ZERO), AT, 60_000),))}
TRANSACTIONS: Final = {
    **COMMON,
    "doubts": merge_doubts(REPORTED, DOUBTS),
    "doubt_count": 2,
    "is_at_least": True,
    "unwell": [REPORTED.servers[3], REPORTED.servers[4], REPORTED.servers[5]],
    "unheard": [REPORTED.servers[3], REPORTED.servers[4]],
    "is_admin": True,
    "held": HELD,
    "held_count": 3,
    "open": [OpenTransaction(1, 0, EVIL, 1000, 5), OpenTransaction(2, 1, "", 1000, 5)],
    "open_count": 7,
    "open_old_ms": 12_000,
    "loads": LOADS,
    "loads_old_ms": 12_000,
}
RECOVERIES: Final = {
    **COMMON,
    "starts": STARTS,
    "start_count": 9,
    "starts_old_ms": 12_000,
    "loads": LOADS,
    "loads_old_ms": None,
}
NOTHING: Final = {"reported": None, "problem": Unavailable(EVIL)}
EMPTY: Final = {
    "reported": ReportedCluster(0, ()),
    "problem": None,
    "doubts": [],
    "doubt_count": 0,
    "is_at_least": False,
    "open_count": 0,
    "open_old_ms": None,
    "loads_old_ms": None,
    "starts_old_ms": None,
    "stuck": None,
    "unwell": [],
    "unheard": [],
    "is_admin": False,
    "held": [],
    "open": [],
    "held_count": 0,
    "loads": None,
    "starts": [],
    "start_count": 0,
    "charts": [],
    "cells": (),
    "replicas": (),
    "rates": CLUSTER["rates"],
    "sums": SUMS,
    "gateway": "g",
}
COPIED: Final = ReportedCluster(
    REPORTED.at_us,
    (
        REPORTED.servers[0],
        Server("cell", "a", "ready", "", "0.1.0", ZERO, replace(CELL, copies=COPIES)),
        Server("replica", "http://r0", "ready", "", "0.1.0", None, REPLICA),
        Server("replica", f"http://{EVIL}", "silent", EVIL),
    ),
)
REPLICATED: Final = {
    **CLUSTER,
    "reported": COPIED,
    "cells": map_cells(COPIED, TABLETS, lambda path: True),
    "replicas": replica_lines(COPIED),
}
UNKNOWN: Final = {
    **EMPTY,
    "reported": ReportedCluster(0, (Server("master", "m", "silent", "refused"),), "refused"),
    "is_admin": True,
    "doubts": None,
    "open": None,
    "starts": None,
}
"""As it is told of a gateway that was started while the master was away."""
ERROR: Final = described(
    InvalidRequest(f"{EVIL}\n^", line=3, character=4, near=EVIL, offset=9, x=EVIL)
)


class Tags(HTMLParser):
    """Which elements and attributes there are, and whether each is ended."""

    VOID = ("meta", "link", "input", "br", "img")
    SHAPES = ("path", "rect", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str | None] = []
        self.names: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        found = dict(attributes)
        self.names += found
        self.ids += [found["id"]] if "id" in found else []
        if tag == "script":
            self.scripts.append(found.get("src"))
        if tag == "img":
            assert found["src"].startswith("/console/static/mark.svg")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        assert tag in self.SHAPES

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("cluster.html", CLUSTER),
        ("cluster.html", REPLICATED),
        ("cluster.html", NOTHING),
        ("cluster.html", EMPTY),
        ("transactions.html", TRANSACTIONS),
        ("transactions.html", {**TRANSACTIONS, "is_admin": False, "held": [], "doubts": []}),
        ("transactions.html", NOTHING),
        ("transactions.html", EMPTY),
        ("recoveries.html", RECOVERIES),
        ("recoveries.html", NOTHING),
        ("recoveries.html", EMPTY),
        ("cluster.html", UNKNOWN),
        ("transactions.html", UNKNOWN),
        ("recoveries.html", UNKNOWN),
        ("error.html", {"error": ERROR}),
        ("login.html", {"error": ERROR}),
        ("login.html", {"error": None}),
        ("parts/error.html", {"error": ERROR}),
    ],
)
def test_a_page_shows_its_data_and_runs_no_script_from_the_data(
    name: str, given: dict[str, Any]
) -> None:
    principal = None if name in ("login.html", "error.html") else ANN
    tags = Tags(render(name, principal, **given))
    assert all(it is not None and it.startswith("/console/static/") for it in tags.scripts)
    assert not any(it.startswith("on") or it == "style" for it in tags.names)
    assert len(tags.ids) == len({*tags.ids})


def test_the_pages_name_the_problems_of_the_cluster() -> None:
    shown = render("cluster.html", ANN, **CLUSTER)
    for words in ("not ready", "no answer", "lost", "tables that your token does not show"):
        assert words in shown
    assert "//hidden" not in shown
    shown = render("transactions.html", ANN, **TRANSACTIONS)
    assert "1 min" in shown
    assert ">committing<" in shown
    shown = render("recoveries.html", ANN, **RECOVERIES)
    for words in ("after a crash", "1 committed, 1 still open", "rolled forward", "crashed"):
        assert words in shown
    assert "2 master transactions" in shown


def test_the_map_shows_the_copies_of_logs() -> None:
    shown = render("cluster.html", ANN, **REPLICATED)
    assert "2 of 3 copies" in shown
    assert "has not answered for 90 s" in shown
    assert "log of epoch 7" in shown
    table = shown.partition('id="replicas"')[2].partition("</table>")[0]
    assert table.count("<tr>") == 3
    assert ">1,234<" in table
    assert ">cell 0<" in table
    assert "no answer" in table
    for page in (CLUSTER, EMPTY, UNKNOWN):
        shown = render("cluster.html", ANN, **page)
        assert "copies" not in shown
        assert "Log replicas" not in shown


def test_unknown_facts_are_not_shown_as_none() -> None:
    shown = render("transactions.html", ANN, **UNKNOWN)
    for words in (
        "None is open",
        "every transaction is decided",
        'class="badge">0</span></h2>\n<p',
    ):
        assert words not in shown.partition("Held by")[0] + shown.partition("Master tr")[2]
    for words in ("open transactions are not known", "transactions in doubt are not known"):
        assert words in shown
    shown = render("cluster.html", ANN, **UNKNOWN)
    assert "knows no cell yet" not in shown
    assert "not known until the master answers" in shown
    assert "knows no cell yet" in render("cluster.html", ANN, **EMPTY)
    shown = render("recoveries.html", ANN, **UNKNOWN)
    assert "the starts are not known" in shown
    assert "No server has reported a start yet" in render("recoveries.html", ANN, **EMPTY)
    unheard = [REPORTED.servers[3]]
    shown = render("transactions.html", ANN, **{**EMPTY, "unwell": unheard, "unheard": unheard})
    assert "does not report its transactions in doubt" in shown
    assert "None in the cells that answer." in shown
    lost = {**EMPTY, "unwell": [REPORTED.servers[5]]}
    assert "every transaction is decided" in render("transactions.html", ANN, **lost)


def test_the_pages_mark_old_and_partial_data() -> None:
    shown = render("cluster.html", ANN, **CLUSTER)
    assert shown.count("from 2 of 3 cells") == 5
    assert shown.count("from 1 of 3 cells") == 1
    assert "Last report, of 2026-07-01 11:59:50:" in shown
    assert shown.count("Last report") == 1
    assert "Includes only the first 1 of 20,000 tablets." in shown
    assert "≥ 2 <small>over 1 s</small>" in shown
    assert 'class="warn"' in shown
    calm = {**CLUSTER, "stuck": Stuck(0, False, 3), "sums": {**SUMS, "cells_heard": 3}}
    shown = render("cluster.html", ANN, **calm)
    assert "3 cells" not in shown
    assert 'class="warn"' not in shown
    shown = render("transactions.html", ANN, **TRANSACTIONS)
    assert shown.count("As of 12 s ago") == 2
    assert "at least 2</span>" in shown
    assert "And 5 more." in shown
    assert "As of 12 s ago" in render("recoveries.html", ANN, **RECOVERIES)


def test_each_row_that_can_be_opened_has_its_own_id() -> None:
    """So that a row that comes, above it, takes neither its place nor the focus."""
    shown = render("recoveries.html", ANN, **RECOVERIES)
    ids = Tags(shown).ids
    for name in ("start-cell-1-1", "taken-cell-1-1", "more-cell-1-1", "start-master-0-1"):
        assert name in ids
    assert f"recovery-{LOAD}" in ids
    ids = Tags(render("transactions.html", ANN, **TRANSACTIONS)).ids
    assert {f"doubt-{AT}", f"held-{HELD[0].id}", f"load-{LOAD}", "open-1"} <= {*ids}


@pytest.mark.parametrize(
    ("is_cut", "said"), [(True, "The first 2 rows; there are more"), (False, "2 rows in")]
)
def test_a_result_reports_whether_more_rows_exist(is_cut: bool, said: str) -> None:
    result = Result(["a"], ["int64"], [[1], [2]], is_cut, 1, 5, AT)
    shown = render("parts/result.html", ANN, error=None, result=result, query="x")
    assert said in shown
    assert ("there are more" in shown) == is_cut
