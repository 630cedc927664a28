"""What a server has imported when its data plane begins: imports take most of the time of a start.

While the master is away nobody gets a timestamp, so that pages (FastAPI and what it needs) come
afterwards.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dodona_local.ports import reserve_ports

SECONDS_MAX = 120
PAGES = {"fastapi", "starlette", "prometheus_client", "jinja2"}
CALLS = {"httpx", "httpcore", "anyio", "certifi"}
OTHERS = {"duckdb", "pandas", "rich", "typer", "opentelemetry", "brotli", "msgpack"}
ARROW = {"numpy", "pyarrow"}
"""A node needs it: rows leave its memory as Arrow's."""

SERVE = """
    import json, runpy, sys, uvicorn

    def serve(server, sockets=None):
        print(json.dumps(sorted(sys.modules)))
        raise SystemExit(0)

    uvicorn.Server.run = serve
    module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def top_level(program: str, *arguments: str) -> set[str]:
    """The packages that the program had imported when it printed what it has."""
    code = "\n".join(line.removeprefix("    ") for line in program.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (["dodona_oracle", "master", "--data-dir", "{}"], PAGES | CALLS | OTHERS | ARROW),
        (["dodona_oracle", "proxy"], PAGES | CALLS | OTHERS | ARROW),
        (["dodona_tablets", "--cell", "0", "--data-dir", "{}"], PAGES | CALLS | OTHERS),
        (
            ["dodona_tablets", "replica", "--cluster", "home", "--data-dir", "{}"],
            PAGES | CALLS | OTHERS | ARROW,
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
    found = top_level(SERVE, *arguments, "--port", str(reservation.ports[0]))
    assert "uvicorn" in found
    assert found & unwanted == set()


def test_links_of_a_node_need_no_http_client() -> None:
    """Which takes a tenth of a second to import, at each start."""
    program = "import json, sys, dodona_tablets.shell.links\nprint(json.dumps(sorted(sys.modules)))"
    assert top_level(program) & CALLS == set()


def test_the_package_is_imported_without_the_client() -> None:
    found = top_level("import json, sys, dodona\nprint(json.dumps(sorted(sys.modules)))")
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
    assert top_level(program) & (PAGES | OTHERS | ARROW) == set()


def test_an_embedded_database_opens_without_a_network(tmp_path: Path) -> None:
    """What it does not need would be half of the time of its start."""
    program = """
    import json, sys, dodona
    with dodona.open(sys.argv[1]) as db:
        db.generate_timestamp()
        print(json.dumps(sorted(sys.modules)))
    """
    found = top_level(program, str(tmp_path / "data"))
    assert "dodona_local" in found
    unwanted = PAGES | CALLS | OTHERS | {"picows", "pydantic", "python_socks", "uvicorn", "uvloop"}
    assert found & unwanted == set()
