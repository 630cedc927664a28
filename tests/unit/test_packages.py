"""All packages of our wheels: typed, known where our code is told from others', public by name. All
projects: of one version, under one license."""

import ast
import inspect
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dodona_local import embedded, interrupts, places
from suite.projects import FOLDERS, ROOT, packages_of, project_of, requirements_of, settings_of

PACKAGES = [it for name in FOLDERS for it in packages_of(name)]
NAMES = {it.name for it in PACKAGES}
CLIENTS_ONLY = {"dodona_gateway", "dodona_loadtest", "dodona_ytsaurus", "pyspark_dodona"}
"""No part of an embedded database."""


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda it: it.name)
def test_each_package_ships_its_types(folder: Path) -> None:
    assert (folder / "py.typed").exists()


def test_each_package_is_in_one_wheel() -> None:
    """And what is linted as ours is all that we build."""
    linted = settings_of("dodona-server")["tool"]["importlinter"]["root_packages"]
    assert sorted(it.name for it in PACKAGES) == sorted(linted)


def test_no_project_builds_what_is_outside_of_its_folder() -> None:
    for name, folder in FOLDERS.items():
        assert all(it.resolve().is_relative_to(folder) for it in packages_of(name))


def test_all_projects_have_one_version_and_require_it_of_each_other() -> None:
    (version,) = {project_of(name)["version"] for name in FOLDERS}
    ours = []
    for name in FOLDERS:
        extras = project_of(name).get("optional-dependencies", ())
        wanted = [Requirement(it) for it in requirements_of(name, *extras)]
        ours += [it for it in wanted if it.name in FOLDERS]
    assert len(ours) >= len(FOLDERS) - 1
    assert {str(it.specifier) for it in ours} == {f"=={version}"}


def test_no_index_is_asked_for_our_own_packages() -> None:
    """A package of another project could have the name."""
    sources = settings_of("dodona-server")["tool"]["uv"]["sources"]
    required = {name for name in FOLDERS if name != "dodona-loadtest"}
    assert sources == {name: {"workspace": True} for name in required}
    for lock in (ROOT / "requirements.lock", *(ROOT / "helm" / "docker").glob("*.lock")):
        assert not re.search("^dodona", lock.read_text(), re.MULTILINE)


def test_all_projects_have_the_same_license_and_describe_themselves_alike() -> None:
    texts = {(folder / "LICENSE").read_text() for folder in FOLDERS.values()}
    assert len(texts) == 1
    for name, folder in FOLDERS.items():
        project = project_of(name)
        assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
        assert (folder / project["readme"]).exists()
        assert "Typing :: Typed" in project["classifiers"]
        assert project["requires-python"] == project_of("dodona")["requires-python"]


def test_our_own_code_is_known() -> None:
    assert interrupts.CORE_PACKAGES >= NAMES - CLIENTS_ONLY
    assert NAMES - {"dodona_loadtest", "dodona_oracle", "dodona_tablets"} <= places._OWN
    assert {it.rstrip(".") for it in embedded._OWN} >= NAMES - CLIENTS_ONLY - {
        "dodona_oracle",
        "dodona_tablets",
    }


@pytest.mark.parametrize("package", ["dodona", "dodona_wire"])
def test_no_string_of_the_client_names_a_package_above_it(package: str) -> None:
    """import-linter does not see a module that is loaded by its name. `dodona.spark` loads the
    connector so, which is in the same wheel."""
    above = NAMES - {"dodona", "dodona_wire"}
    naming = re.compile(rf"\b(?:{'|'.join(sorted(above))})\b")
    found = {
        (path.relative_to(ROOT / "client").as_posix(), name)
        for path in (ROOT / "client" / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in naming.findall(node.value)
    }
    assert found == ({("dodona/spark.py", "pyspark_dodona")} if package == "dodona" else set())


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


@pytest.mark.parametrize("folder", [it for it in PACKAGES if it.name in ("dodona", "dodona_wire")])
def test_a_client_s_log_is_below_one_name(folder: Path) -> None:
    """So that a program may silence it, or hear of it."""
    for path in folder.rglob("*.py"):
        assert "getLogger(__name__)" not in path.read_text(), path


def test_no_modules_import_each_other() -> None:
    """Neither directly nor through others, and not for annotations only: each can be understood
    before those that import it."""
    sources = {
        _module_of(folder, path): path.read_text("utf-8")
        for folder in PACKAGES
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
