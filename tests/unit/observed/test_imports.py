"""What a server has imported when its data plane begins, and what a client has imported for single
rows: imports take most of the time of a start.

While the master is away nobody gets a timestamp, so that pages (FastAPI and what it needs) come
afterwards.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dodona_local.ports import reserve_ports
from unit.client.cluster import running_cluster

SECONDS_MAX = 120
PAGES = {"fastapi", "starlette", "prometheus_client", "jinja2"}
CALLS = {"httpx", "httpcore", "anyio", "certifi"}
OTHERS = {"duckdb", "pandas", "rich", "typer", "opentelemetry", "brotli", "msgpack"}
ARROW = {"numpy", "pyarrow"}
"""A node needs it: rows leave its memory as Arrow's."""

FOR_EXPRESSIONS = {"dodona_wire.expressions", "dodona_wire.rows.computed_column"}
NOT_FOR_ROWS = FOR_EXPRESSIONS | {
    "dodona_wire.html_tables",
    "dodona_wire.rows.arrow",
    "dodona_wire.rows.arrow_keys",
    "dodona_wire.rows.logical_arrow",
    "dodona_wire.rows.nested_arrow",
    "dodona._core.loads.one_call",
    "dodona._core.loads.session",
    "dodona._core.reading.frames",
    "dodona._core.reading.query",
    "dodona._core.sql",
    "dodona._core.writing.bulk",
    "dodona._core.writing.column_types",
    "dodona._core.writing.tabular",
    "dodona._core.writing.whole",
}
"""A third of all that a client could import: for data frames, queries and bulk loads."""

SERVE = """
    import json, runpy, sys, uvicorn

    def serve(server, sockets=None):
        print(json.dumps(sorted(sys.modules)))
        raise SystemExit(0)

    uvicorn.Server.run = serve
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def modules(program: str, *arguments: str) -> set[str]:
    """The modules that the program had imported when it printed what it has."""
    code = "\n".join(line.removeprefix("    ") for line in program.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (
            ["dodona_oracle", "master", "--data-dir", "{}"],
            FOR_EXPRESSIONS | PAGES | CALLS | OTHERS | ARROW,
        ),
        (["dodona_oracle", "proxy"], FOR_EXPRESSIONS | PAGES | CALLS | OTHERS | ARROW),
        (
            ["dodona_tablets", "--cell", "0", "--data-dir", "{}"],
            FOR_EXPRESSIONS | PAGES | CALLS | OTHERS,
        ),
        (
            ["dodona_tablets", "replica", "--cluster", "home", "--data-dir", "{}"],
            FOR_EXPRESSIONS | PAGES | CALLS | OTHERS | ARROW,
        ),
    ],
    ids=["master", "proxy", "node", "replica"],
)
def test_a_server_serves_before_it_imports_the_modules_of_its_pages(
    tmp_path: Path, words: list[str], unwanted: set[str]
) -> None:
    reservation = reserve_ports(0, 1)
    reservation.release()
    arguments = [it.format(tmp_path / "data") for it in words]
    found = modules(SERVE, *arguments, "--port", str(reservation.ports[0]))
    assert "uvicorn" in found
    assert found & unwanted == set()


def test_links_of_a_node_need_no_http_client() -> None:
    """Which takes a tenth of a second to import, at each start."""
    program = "import json, sys, dodona_tablets.shell.links\nprint(json.dumps(sorted(sys.modules)))"
    assert modules(program) & CALLS == set()


def test_the_package_is_imported_without_the_client() -> None:
    found = modules("import json, sys, dodona\nprint(json.dumps(sorted(sys.modules)))")
    assert "dodona" in found
    assert found & (PAGES | CALLS | OTHERS | ARROW | {"asyncio", "msgspec", "picows"}) == set()


def test_every_name_of_the_package_is_there_on_first_use() -> None:
    program = """
    import json, sys, dodona
    assert set(dodona._HOME_OF) == set(dodona.__all__), "each name has one home"
    for name in [*dodona.__all__, *dodona._MODULES]:
        getattr(dodona, name)
        assert name in dir(dodona)
    assert not hasattr(dodona, "no_such_name")
    print(json.dumps(sorted(sys.modules)))
    """
    assert modules(program) & (PAGES | OTHERS | ARROW) == set()


def test_an_embedded_database_opens_without_a_network(tmp_path: Path) -> None:
    """What it does not need would be half of the time of its start."""
    program = """
    import json, sys, dodona
    with dodona.open(sys.argv[1]) as db:
        db.generate_timestamp()
        print(json.dumps(sorted(sys.modules)))
    """
    found = modules(program, str(tmp_path / "data"))
    assert "dodona_local" in found
    unwanted = PAGES | CALLS | OTHERS | {"picows", "pydantic", "python_socks", "uvicorn", "uvloop"}
    assert found & unwanted == set()


def test_a_client_of_single_rows_imports_nothing_for_queries_and_bulk_data() -> None:
    program = """
    import json, sys, dodona
    schema = [
        {"name": "id", "type": "int64", "sort_order": "ascending"},
        {"name": "at", "type": "timestamp"},
        {"name": "tags", "type": "list<utf8>"},
    ]
    with dodona.connect(sys.argv[1]) as db:
        db.create_table("//t", schema)
        db.insert_rows("//t", [{"id": 1, "tags": ["a"]}])
        with db.begin() as tx:
            assert tx.lookup_rows("//t", [{"id": 1}])[0]["tags"] == ["a"]
            tx.insert_rows("//t", [{"id": 2, "tags": []}])
        assert len(db.select("//t")) == 2
        print(json.dumps(sorted(sys.modules)))
    """
    assert all(map(find_spec, NOT_FOR_ROWS))
    with running_cluster() as cluster:
        found = modules(program, cluster.url)
    assert "dodona._core.writing.committing" in found
    assert found & NOT_FOR_ROWS == set()
