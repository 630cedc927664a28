"""All packages of the wheel: typed, known where our code is told from others', public by name."""

import ast
import inspect
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
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


def test_no_modules_import_each_other() -> None:
    """Neither directly nor through others, and not for annotations only: each can be understood
    before those that import it."""
    sources = {
        _module_of(folder, path): path.read_text("utf-8")
        for folder in FOLDERS
        for path in folder.rglob("*.py")
    }
    assert len(sources) > 500
    assert _circle_in(sources) == []


def test_a_circle_for_annotations_is_found() -> None:
    guarded = "if TYPE_CHECKING:\n    from a.c import C\n"
    sources = {"a": "", "a.b": guarded, "a.c": "def f():\n    from a import d\n", "a.d": ""}
    assert _circle_in(sources) == []
    assert set(_circle_in({**sources, "a.d": "import a.b"})) == {"a.b", "a.c", "a.d"}


def _module_of(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _circle_in(sources: dict[str, str]) -> list[str]:
    graph = {
        module: [it for it in _imported(source, {*sources}) if it != module]
        for module, source in sources.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [*error.args[1]]
    return []


def _imported(source: str, modules: set[str]) -> Iterator[str]:
    """The modules that a source imports anywhere, for annotations and in functions, too."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [it if it in modules else node.module for it in full]
        yield from (it for it in names if it in modules)
