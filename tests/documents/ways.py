"""How each page's blocks run, and which are shown only.

Owns: the table of both. A page that is not named runs like most: all of its blocks in order, beside
a cluster whose master is at the address that pages give, with gateways that ask for no tokens. A
page may be cut by headings into parts that run apart.
"""

import textwrap
from dataclasses import dataclass
from typing import Final, Literal

from documents.blocks import RUN, Block, blocks_of, pages

MASTER_PORT: Final = 8500
GATEWAY_PORT: Final = 8502

Place = Literal["cluster", "spark"]
"""`spark`: in the process of the tests, which has a session (`spark`) and a folder
(`checkpoints`), beside the same cluster."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a page runs, or the sections of it that are named."""

    page: str
    headings: tuple[str, ...] = ()
    place: Place = "cluster"
    before: str = ""
    """Python that runs first, where a page leaves out what is of no interest."""
    skipped: tuple[str, ...] = ()
    """Beginnings of commands that are shown only: they prepare the environment that tests are in
    already, or are long tests themselves."""

    @property
    def name(self) -> str:
        return ": ".join([self.page, *self.headings])

    @property
    def blocks(self) -> list[Block]:
        """Those that run."""
        blocks = [it for it in blocks_of(self.page) if it.language in RUN]
        taken = [heading for way in WAYS for heading in way.headings if way.page == self.page]
        if self.headings:
            return [it for it in blocks if it.heading in self.headings]
        return [it for it in blocks if it.heading not in taken]


def _code(text: str) -> str:
    return textwrap.dedent(text)


FLIGHTS: Final = _code("""
    import dodona
    db = dodona.connect("http://127.0.0.1:8500")
    db.create_table("//nyc13/airlines", mount=True, schema=[
        {"name": "carrier", "type": "utf8", "sort_order": "ascending"},
        {"name": "name", "type": "utf8"}])
    db.insert_rows("//nyc13/airlines", [{"carrier": "UA", "name": "United"}])
    db.create_table("//nyc13/flights", atomicity="none", mount=True, schema=[
        {"name": "flight", "type": "int64", "sort_order": "ascending"},
        {"name": "month", "type": "int64"}, {"name": "carrier", "type": "utf8"},
        {"name": "dep_delay", "type": "double"}])
    flights = [{"flight": it, "month": it, "carrier": "UA", "dep_delay": 1.0} for it in range(12)]
    with db.begin(atomicity="none") as tx:
        tx.insert_rows("//nyc13/flights", flights)
""")
ORDERS: Final = _code("""
    import dodona, pyarrow as pa
    db = dodona.connect("http://127.0.0.1:8500")
    orders, lines = pa.table({"id": [1], "total": [9.5]}), pa.table({"id": [1], "total": [2.0]})
    for path in ("//shop/orders", "//shop/lines"):
        db.create_table(path, mount=True, schema=[
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "total", "type": "double"}])
""")
CSV: Final = _code("""
    from pathlib import Path
    Path("orders.csv").write_text("id,customer,total\\n1,ann,9.5\\n")
""")
ACCOUNTS: Final = _code("""
    import dodona
    with dodona.connect("http://127.0.0.1:8500") as db:
        db.create_table("//bank/accounts", mount=True, schema=[
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "balance", "type": "int64"}])
        db.insert_rows("//bank/accounts", [{"id": 1, "balance": 100}])
""")

STOCK: Final = _code("""
    import dodona
    with dodona.connect("http://127.0.0.1:8500") as db:
        db.create_table("//shop/stock", mount=True, schema=[
            {"name": "item", "type": "utf8", "sort_order": "ascending"},
            {"name": "amount", "type": "int64"}])
        stock = [{"item": "lamp", "amount": 7}, {"item": "rope", "amount": 40}]
        db.insert_rows("//shop/stock", stock)
""")

THEIRS: Final = _code("""
    import os
    import yt.wrapper
    os.environ["YT_PROXY"] = "http://127.0.0.1:8502"
    theirs = yt.wrapper.YtClient(proxy="http://127.0.0.1:8502", config={"enable_token": False})
    theirs.create("table", "//home/bank/accounts", recursive=True, attributes={
        "dynamic": True, "schema": [
            {"name": "id", "type": "int64", "sort_order": "ascending"},
            {"name": "owner", "type": "string"}, {"name": "balance", "type": "int64"},
            {"name": "tags", "type": "any"}]})
    theirs.mount_table("//home/bank/accounts", sync=True)
    theirs.insert_rows("//home/bank/accounts", [
        {"id": id, "owner": owner, "balance": 100, "tags": tags}
        for id, owner, tags in [
            (1, "Ann", {"since": 2013}), (2, b"B\\xf6b", ["new", None, 1.5]), (3, "Eve", "text")]])
""")

WAYS: Final = [
    Way("README.md", ("Two commands",), skipped=("make demo", "make test")),
    Way("README.md", ("Ten lines",)),
    Way("README.md", ("A cluster on this machine",)),
    Way("README.md", ("SQL at a snapshot",), before=FLIGHTS),
    Way("README.md", ("By hand",), before=CSV),
    Way("README.md", ("REST, and `yt`",)),
    Way("README.md", ("Backups",), before=ACCOUNTS),
    Way("README.md", ("Bulk loads",), before=ORDERS),
    Way(
        "README.md",
        ("From Spark",),
        "spark",
        FLIGHTS + 'df = spark.range(3).selectExpr("id as flight", "double(1) as dep_delay")\n',
    ),
    Way(
        "docs/explanation/reliability.md",
        skipped=("make soak", "python -m simulator --seeds"),
    ),
    Way("docs/how-to/back-up.md", before=STOCK),
    Way("docs/how-to/move-from-ytsaurus.md", before=THEIRS),
    Way("docs/how-to/bulk-load-with-spark.md", place="spark"),
    Way("docs/how-to/stream-with-spark.md", place="spark"),
    Way("docs/reference/spark.md", place="spark"),
    Way("docs/tutorial.md", skipped=("make install",)),
]

SHOWN: Final = {
    ("ARCHITECTURE.md", "text"): (1, "a drawing"),
    ("docs/explanation/reliability.md", "text"): (1, "the report of a failure"),
    ("docs/how-to/observe.md", "yaml"): (1, "is Prometheus's; test_observe_page.py reads it"),
    ("docs/how-to/run-on-kubernetes.md", "sh"): (16, "need a cluster; tests/unit/chart reads them"),
    ("docs/how-to/run-on-kubernetes.md", "yaml"): (3, "are values and pods, which tests compare"),
    ("docs/how-to/run-on-machines.md", "ini"): (8, "are units; test_shown_blocks.py starts them"),
    ("docs/how-to/run-on-machines.md", "sh"): (9, "need systemd; the units' tests read them"),
    ("docs/how-to/use-the-console.md", "text"): (1, "is of `dodona up`, which the README runs"),
    ("docs/reference/access.md", "text"): (1, "starts a master: test_shown_blocks.py does, too"),
}
"""Blocks that are not run, by page and language: how many there are, and why."""

SIGNATURES: Final = ("docs/reference/api.md", "pyi")
"""Nor are these, which are made of the code that runs (`documents.generated`)."""


def ways() -> list[Way]:
    """One for each page, or part of one, that has blocks."""
    named = {it.page for it in WAYS}
    found = [it for it in pages() if it not in named or any(it == way.page for way in WAYS)]
    rest = [Way(it) for it in found if not any(way.page == it and not way.headings for way in WAYS)]
    return [it for it in [*WAYS, *rest] if it.blocks]
