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

Place = Literal["cluster", "spark", "alone"]
"""`spark`: in the process of the tests, which has a session (`spark`) and a folder
(`checkpoints`), beside the same cluster. `alone`: the page starts all that it needs, as for a
reader who has no environment activated."""


@dataclass(frozen=True, slots=True)
class RunPlan:
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
        taken = [
            heading for plan in RUN_PLANS for heading in plan.headings if plan.page == self.page
        ]
        if self.headings:
            return [it for it in blocks if it.heading in self.headings]
        return [it for it in blocks if it.heading not in taken]


def _code(text: str) -> str:
    return textwrap.dedent(text)


ADMIN_TOKEN: Final = _code("""
    from pathlib import Path
    Path("dodona-data").mkdir()
    Path("dodona-data/admin-token").write_text("of a gateway that asks for none")
    Path("dodona-data/cluster-key").write_text("of-a-cluster-that-asks-for-none")
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
            {"name": "tags", "type": "any"},
            {"name": "orders", "type_v3": {"type_name": "optional", "item": {
                "type_name": "list", "item": {"type_name": "struct", "members": [
                    {"name": "day", "type": "date"},
                    {"name": "price", "type": {
                        "type_name": "decimal", "precision": 10, "scale": 2}}]}}}}]})
    theirs.mount_table("//home/bank/accounts", sync=True)
    theirs.insert_rows("//home/bank/accounts", [
        {"id": id, "owner": owner, "balance": 100, "tags": tags,
         "orders": [{"day": 19000, "price": (id + 2**63).to_bytes(8)}]}
        for id, owner, tags in [
            (1, "Ann", {"since": 2013}), (2, b"B\\xf6b", ["new", None, 1.5]), (3, "Eve", "text")]])
""")

RUN_PLANS: Final = [
    RunPlan("README.md", place="alone", skipped=("make demo", "make test")),
    RunPlan(
        "docs/explanation/reliability.md",
        skipped=("make soak", "python -m simulator --seeds"),
    ),
    RunPlan("docs/explanation/mutants.md", skipped=("make mutants",)),
    RunPlan("docs/how-to/back-up.md", before=STOCK),
    RunPlan("docs/how-to/observe.md", before=ADMIN_TOKEN),
    RunPlan("docs/how-to/move-from-ytsaurus.md", before=THEIRS),
    RunPlan("docs/how-to/bulk-load-with-spark.md", place="spark"),
    RunPlan("docs/how-to/stream-with-spark.md", place="spark"),
    RunPlan("docs/reference/spark.md", place="spark"),
    RunPlan("docs/tutorial.md", skipped=("make install",)),
]

SHOWN: Final = {
    ("ARCHITECTURE.md", "text"): (3, "drawings"),
    ("README.md", "text"): (1, "a drawing"),
    ("docs/explanation/reliability.md", "text"): (1, "the report of a failure"),
    ("docs/explanation/replication.md", "text"): (2, "a drawing, and a trace of the model"),
    ("docs/how-to/keep-copies-of-logs.md", "sh"): (7, "run on; test_keep_copies_page.py runs them"),
    ("docs/how-to/observe.md", "yaml"): (1, "is Prometheus's; test_observe_page.py reads it"),
    ("docs/how-to/run-on-kubernetes.md", "sh"): (16, "need a cluster; tests/unit/chart reads them"),
    ("docs/how-to/run-on-kubernetes.md", "yaml"): (3, "are values and pods, which tests compare"),
    ("docs/how-to/run-on-machines.md", "ini"): (8, "are units; test_shown_blocks.py starts them"),
    ("docs/how-to/run-on-machines.md", "sh"): (9, "need systemd; the units' tests read them"),
    ("docs/how-to/run-with-compose.md", "sh"): (8, "need Docker; test_compose.py reads them"),
    ("docs/how-to/run-with-compose.md", "yaml"): (1, "changes services; test_compose.py reads it"),
    ("docs/how-to/use-the-console.md", "text"): (1, "is of `dodona up`, which the README runs"),
    ("docs/reference/access.md", "text"): (1, "starts a master: test_shown_blocks.py does, too"),
}
"""Blocks that are not run, by page and language: how many there are, and why."""

SIGNATURES: Final = ("docs/reference/api.md", "pyi")
"""Nor are these, which are made of the code that runs (`documents.generated`)."""


def run_plans() -> list[RunPlan]:
    """One for each page, or part of one, that has blocks."""
    named = {it.page for it in RUN_PLANS}
    found = [it for it in pages() if it not in named or any(it == plan.page for plan in RUN_PLANS)]
    rest = [
        RunPlan(it)
        for it in found
        if not any(plan.page == it and not plan.headings for plan in RUN_PLANS)
    ]
    return [it for it in [*RUN_PLANS, *rest] if it.blocks]
