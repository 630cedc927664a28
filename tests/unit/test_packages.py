"""All packages of the wheel: typed, known where our code is told from others', public by name."""

import ast
import inspect
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from dodona._io import tracebacks
from dodona_local import interrupts, places

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = [ROOT / it for it in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
NAMES = {it.name for it in FOLDERS}
CLIENTS_ONLY = {"dodona_gateway", "dodona_loadtest", "dodona_ytsaurus", "pyspark_dodona"}
"""No part of an embedded database."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda it: it.name)
def test_each_package_ships_its_types(folder: Path) -> None:
    assert (folder / "py.typed").exists()


def test_our_own_code_is_known() -> None:
    assert interrupts.CORE_PACKAGES >= NAMES - CLIENTS_ONLY
    assert NAMES - {"dodona_loadtest", "dodona_oracle", "dodona_tablets"} <= places._OWN
    assert {it.rstrip(".") for it in tracebacks._OWN} >= NAMES - CLIENTS_ONLY - {
        "dodona_oracle",
        "dodona_tablets",
    }


@pytest.mark.parametrize("name", ["errors", "keys", "schema", "types", "values"])
def test_public_modules_have_all_that_they_are_for(name: str) -> None:
    """Classes show the public name, which is where a program finds them again."""
    public = import_module(f"dodona.{name}")
    (home,) = [
        node.module
        for node in ast.parse(inspect.getsource(public)).body
        if isinstance(node, ast.ImportFrom) and node.module
    ]
    source = ast.parse(inspect.getsource(import_module(home)))
    defined = {it.name for it in source.body if isinstance(it, ast.ClassDef | ast.FunctionDef)}
    assert {it for it in defined if not it.startswith("_")} - {"Now"} <= {*public.__all__}
    kinds = [it for it in vars(public).values() if isinstance(it, type)]
    assert {it.__module__ for it in kinds} - {"builtins"} <= {f"dodona.{name}", home}


@pytest.mark.parametrize("folder", [it for it in FOLDERS if it.name in ("dodona", "dodona_wire")])
def test_a_client_s_log_is_below_one_name(folder: Path) -> None:
    """So that a program may silence it, or hear of it."""
    for path in folder.rglob("*.py"):
        assert "getLogger(__name__)" not in path.read_text(), path
