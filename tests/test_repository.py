"""The house rules, as tests: what a reviewer would otherwise have to say again and again.

Owns the rules that ruff, mypy and import-linter cannot state. Each rule is a small function from
one module, or from the whole repository, to the complaints about it, and each is itself tested
with a planted violation. Imports nothing of Dodona: it reads the sources as text.
"""

import ast
import functools
import gc
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("client", "oracle", "tablets", "loadtest", "tests")
GENERATED_FOLDERS = {"__pycache__", "build", "data", "dist", "spark-warehouse"}

PRODUCTION_FOLDERS = ("client", "oracle", "tablets")
FAULT_POINTS = "dodona_wire.cores.fault_points"

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500

SHARED_FOLDER, SHARED_IO_FOLDER = "client/dodona_wire/", "client/dodona_wire/net/"
PRINTING_FOLDERS = ("client/dodona_local", "loadtest", "tests")
# Calls that would hand the unstable order of a set on to their result.
ORDER_KEEPERS = {"enumerate", "iter", "list", "map", "next", "tuple", "zip"}

# Written so that neither pattern matches this file itself.
HOME_PATH = re.compile(r"(?:(?<![\w/.~})])|file://)/(?:root|home|Users)/")
REGISTRY_HOST = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|crates\.io|proxy\.golang\.org"
    r"|maven\.org|maven\.apache\.org)\b",
    re.IGNORECASE,
)
DECISION_NAME = re.compile(r"\d{3}-[a-z0-9]+(?:-[a-z0-9]+)*\.md")


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file: where it lies below the repository's root, and what it says."""

    path: PurePosixPath
    source: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    """All of the tree: to walk it takes longer than all that a rule does."""

    @property
    def name(self) -> str:
        """The dotted name under which the module is imported: the top folder is not part of it."""
        parts = self.path.with_suffix("").parts[1:]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


ModuleRule = Callable[[Module], Iterator[str]]


def module_of(path: str, source: str) -> Module:
    tree = ast.parse(source, filename=path)
    return Module(PurePosixPath(path), source, tree, tuple(ast.walk(tree)))


@functools.cache
def repository_modules() -> tuple[Module, ...]:
    paths = [path for path in repository_files() if path.suffix == ".py"]
    gc.disable()  # it would look through millions of nodes again and again, and none is garbage
    try:
        return tuple(
            module_of(str(path), (ROOT / path).read_text("utf-8"))
            for path in paths
            if path.parts[0] in SOURCE_FOLDERS
        )
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def forget_modules() -> Iterator[None]:
    """Other tests of this process need not carry them."""
    yield
    repository_modules.cache_clear()


@functools.cache
def repository_files() -> tuple[PurePosixPath, ...]:
    """Every file that belongs to the project, relative to its root, in a stable order."""
    names = _names_known_to_git() or _names_on_disk()
    return tuple(PurePosixPath(name) for name in sorted(names) if (ROOT / name).is_file())


def _names_known_to_git() -> list[str]:
    """Nothing where this is no checkout, as in an unpacked release, or where git is missing."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return []
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return [name for name in listing.stdout.split("\0") if name]


def _names_on_disk() -> list[str]:
    """All but what tools and local runs leave behind."""
    names = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    return [str(name) for name in names if not _is_generated(name.parts[:-1])]


def _is_generated(folders: tuple[str, ...]) -> bool:
    return any(it in GENERATED_FOLDERS or (it[0] == "." and it != ".ci") for it in folders)


# ---- rules for one module


def has_docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.path}: no module docstring"


def has_short_functions(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (lines := _function_lines(node)) > FUNCTION_LINES_MAX:
            yield f"{module.path}:{node.lineno}: {node.name} has {lines} lines"


def _function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring left out: explaining costs nothing."""
    docstring = node.body[0] if ast.get_docstring(node, clean=False) is not None else None
    return _lines_of(node) - (_lines_of(docstring) if docstring else 0)


def _lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def is_short_file(module: Module) -> Iterator[str]:
    if (lines := len(module.source.splitlines())) > FILE_LINES_MAX:
        yield f"{module.path}: {lines} lines"


def keeps_sets_out_of_loops(module: Module) -> Iterator[str]:
    """The order of a set differs between runs; in a core, one seed has to give one history."""
    if not is_core(module.path):
        return
    for node in module.nodes:
        if any(_is_set(iterated) for iterated in _iterated_by(node)):
            yield f"{module.path}:{getattr(node, 'lineno', '?')}: sort the set before iterating"


def is_core(path: PurePosixPath) -> bool:
    name = str(path)
    is_shared = name.startswith(SHARED_FOLDER) and not name.startswith(SHARED_IO_FOLDER)
    return is_shared or "core" in path.parts[1:-1] or "_core" in path.parts[1:-1]


def _iterated_by(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
            return [iterated]
        case ast.Starred(value=iterated) | ast.YieldFrom(value=iterated):
            return [iterated]
        case ast.Call(func=ast.Name(id=called), args=arguments) if called in ORDER_KEEPERS:
            return arguments
        case ast.Call(func=ast.Attribute(attr="join" | "extend"), args=arguments):
            return arguments
    return []


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
    return False


def asserts_no_tuples(module: Module) -> Iterator[str]:
    """A tuple is always true, so such an assertion never fails."""
    for node in module.nodes:
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple):
            yield f"{module.path}:{node.lineno}: assert on a tuple"


def names_what_it_catches(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield f"{module.path}:{node.lineno}: bare except"


def waits_for_no_program_that_failed(module: Module) -> Iterator[str]:
    """`with Popen` waits for it, whatever happened: tests have `suite.programs`."""
    if module.path.parts[0] != "tests" or module.path.name == "programs.py":
        return
    for node in module.nodes:
        if isinstance(node, ast.With) and any("Popen" in ast.dump(it) for it in node.items):
            yield f"{module.path}:{node.lineno}: with Popen"


def prints_only_where_allowed(module: Module) -> Iterator[str]:
    is_allowed = any(module.path.is_relative_to(folder) for folder in PRINTING_FOLDERS)
    if is_allowed or module.path.name == "__main__.py":
        return
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Name(id="print"), lineno=line):
                yield f"{module.path}:{line}: print"


# ---- rules for the repository


def unused_modules(modules: Iterable[Module], other_mentions: str) -> Iterator[str]:
    """Modules that nothing imports, names in a string, or starts.

    `other_mentions` is the text of files that start modules by name: entry points, commands.
    """
    modules = list(modules)
    used = {name for module in modules for name in _names_used_by(module)}
    for module in modules:
        is_mentioned = re.search(rf"(?<![\w.]){re.escape(module.name)}(?!\w)", other_mentions)
        if not (module.name in used or is_mentioned or _starts_by_itself(module.path)):
            yield f"{module.path}: nothing uses it"


def _starts_by_itself(path: PurePosixPath) -> bool:
    is_found_by_a_tool = path.name.startswith(("test_", "locustfile"))
    return is_found_by_a_tool or path.name in {"__init__.py", "__main__.py", "conftest.py"}


def _names_used_by(module: Module) -> Iterator[str]:
    for node in module.nodes:
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.ImportFrom(module=str(source), names=aliases, level=0):
                yield source
                yield from (f"{source}.{alias.name}" for alias in aliases)
            case ast.Constant(value=str(text)) if text != module.name:
                yield text.partition(":")[0]


def misused_points(modules: Iterable[Module]) -> Iterator[str]:
    """Fault points of cores: each says why it is legal, and is asked at one place,
    so that its count is that of one thing. Whoever is no core has nothing to do with them."""
    modules = [module for module in modules if module.path.parts[0] in PRODUCTION_FOLDERS]
    asked: dict[str, list[str]] = {}
    for module in modules:
        if not is_core(module.path) and FAULT_POINTS in _names_used_by(module):
            yield f"{module.path}: only cores ask fault points"
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "FaultPoint":
                asked.setdefault(node.attr, []).append(f"{module.path}:{node.lineno}")
    for body in (
        _class_body(module, "FaultPoint") for module in modules if module.name == FAULT_POINTS
    ):
        for member, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(member, ast.Assign):
                continue
            name = ast.unparse(member.targets[0])
            if len(asked.get(name, [])) != 1:
                yield f"FaultPoint.{name}: asked at {len(asked.get(name, []))} places, not one"
            if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
                yield f"FaultPoint.{name}: does not say what makes it legal"


def _class_body(module: Module, name: str) -> list[ast.stmt]:
    classes = [it for it in module.tree.body if isinstance(it, ast.ClassDef) and it.name == name]
    return [statement for found in classes for statement in found.body]


def badly_named_decisions(names: Iterable[str]) -> Iterator[str]:
    return (f"{name}: not NNN-title.md" for name in names if not DECISION_NAME.fullmatch(name))


def has_unreleased_section(changelog: str) -> bool:
    return re.search(r"^## \[Unreleased\]", changelog, re.MULTILINE) is not None


def local_references(path: str, text: str) -> Iterator[str]:
    """Places that name one machine's folders, or the server that packages came from."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := HOME_PATH.search(line) or REGISTRY_HOST.search(line):
            yield f"{path}:{number}: {found.group()}"


# ---- the repository obeys


MODULE_RULES: list[ModuleRule] = [
    has_docstring,
    has_short_functions,
    is_short_file,
    keeps_sets_out_of_loops,
    asserts_no_tuples,
    names_what_it_catches,
    waits_for_no_program_that_failed,
    prints_only_where_allowed,
]


@pytest.mark.parametrize("rule", MODULE_RULES)
def test_every_module_obeys(rule: ModuleRule) -> None:
    assert [complaint for module in repository_modules() for complaint in rule(module)] == []


def test_every_module_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    mentions = "\n".join([*project["scripts"].values(), (ROOT / "Makefile").read_text("utf-8")])
    assert list(unused_modules(repository_modules(), mentions)) == []


def test_every_fault_point_is_asked_at_one_place() -> None:
    assert any(module.name == FAULT_POINTS for module in repository_modules())
    assert list(misused_points(repository_modules())) == []


def test_decisions_are_numbered() -> None:
    folder = PurePosixPath("docs/decisions")
    names = [path.name for path in repository_files() if path.parent == folder]
    assert names
    assert list(badly_named_decisions(names)) == []


def test_changelog_has_an_unreleased_section() -> None:
    assert has_unreleased_section((ROOT / "CHANGELOG.md").read_text("utf-8"))


def test_files_name_no_machine() -> None:
    complaints: list[str] = []
    for path in repository_files():
        text = (ROOT / path).read_text("utf-8", errors="replace")
        complaints += local_references(str(path), text)
    assert complaints == []


# ---- the rules work


def function_of(lines: int, docstring: str = "") -> str:
    return "\n".join(["def f():", *docstring.splitlines(), *["    x = 1"] * (lines - 1)])


CORE = "tablets/dodona_tablets/core/x.py"
SHELL = "tablets/dodona_tablets/shell/x.py"
LONG_DOCSTRING = '    """Title.\n' + "    text\n" * 100 + '    """'

PLANTED: list[tuple[ModuleRule, str, str]] = [
    (has_docstring, SHELL, ""),
    (has_docstring, SHELL, "# A comment is not a docstring.\nx = 1"),
    (has_short_functions, SHELL, function_of(71)),
    (has_short_functions, SHELL, "async " + function_of(71, LONG_DOCSTRING)),
    (is_short_file, SHELL, "x = 1\n" * 501),
    (keeps_sets_out_of_loops, CORE, "for x in {1, 2}: pass"),
    (keeps_sets_out_of_loops, CORE, "for x in set(y): pass"),
    (keeps_sets_out_of_loops, CORE, "z = [x for x in frozenset(y)]"),
    (keeps_sets_out_of_loops, CORE, "z = list({x for x in y})"),
    (keeps_sets_out_of_loops, CORE, "z = [*{1, 2}]"),
    (keeps_sets_out_of_loops, "client/dodona/_core/x.py", "z = b''.join(set(y))"),
    (keeps_sets_out_of_loops, "client/dodona_wire/rows/keys.py", "for x in {1, 2}: pass"),
    (asserts_no_tuples, SHELL, "assert (x, 'always true')"),
    (names_what_it_catches, SHELL, "try:\n    pass\nexcept:\n    pass"),
    (waits_for_no_program_that_failed, "tests/x.py", "with Popen([]) as x: pass"),
    (waits_for_no_program_that_failed, "tests/x.py", "with subprocess.Popen([]): pass"),
    (prints_only_where_allowed, SHELL, "print(1)"),
    (prints_only_where_allowed, "client/dodona/client.py", "def f():\n    print(1)"),
]

INNOCENT: list[tuple[ModuleRule, str, str]] = [
    (has_docstring, SHELL, '"""What it owns."""'),
    (has_short_functions, SHELL, function_of(70)),
    (has_short_functions, SHELL, function_of(70, LONG_DOCSTRING)),
    (is_short_file, SHELL, "x = 1\n" * 500),
    (keeps_sets_out_of_loops, CORE, "for x in sorted({1, 2}): pass"),
    (keeps_sets_out_of_loops, CORE, "z = 1 in {1, 2}"),
    (keeps_sets_out_of_loops, SHELL, "for x in {1, 2}: pass"),
    (asserts_no_tuples, SHELL, "assert x, 'a message'"),
    (names_what_it_catches, SHELL, "try:\n    pass\nexcept OSError:\n    pass"),
    (waits_for_no_program_that_failed, "tests/x.py", "with program([]) as x: pass"),
    (waits_for_no_program_that_failed, "tests/x.py", "x = Popen([])"),
    (prints_only_where_allowed, "client/dodona_local/cli/saving.py", "print(1)"),
    (prints_only_where_allowed, "oracle/dodona_oracle/__main__.py", "print(1)"),
]


@pytest.mark.parametrize(("rule", "path", "source"), PLANTED)
def test_a_planted_violation_is_reported(rule: ModuleRule, path: str, source: str) -> None:
    assert list(rule(module_of(path, source)))


@pytest.mark.parametrize(("rule", "path", "source"), INNOCENT)
def test_innocent_code_is_left_alone(rule: ModuleRule, path: str, source: str) -> None:
    assert list(rule(module_of(path, source))) == []


def test_every_rule_is_tested_both_ways() -> None:
    assert {rule for rule, _, _ in PLANTED} == {rule for rule, _, _ in INNOCENT}
    assert {rule for rule, _, _ in PLANTED} == set(MODULE_RULES)


def test_an_unused_module_is_reported() -> None:
    modules = [
        module_of("client/dodona/__init__.py", "import importlib\nimport dodona.imported\n"),
        module_of("client/dodona/imported.py", "from dodona import imported_from\n"),
        module_of("client/dodona/imported_from.py", "load('dodona.named')\n"),
        module_of("client/dodona/named.py", ""),
        module_of("client/dodona/command.py", ""),
        module_of("client/dodona/forgotten.py", "NAME = 'dodona.forgotten'\n"),
        module_of("tests/unit/test_it.py", ""),
    ]
    found = list(unused_modules(modules, 'run = "dodona.command:main"'))
    assert found == ["client/dodona/forgotten.py: nothing uses it"]


POINTS = """
class FaultPoint(enum.Enum):
    LOSE = enum.auto()
    'It is asked for again.'
"""


@pytest.mark.parametrize(
    ("points", "path", "source", "complaint"),
    [
        (POINTS, CORE, "a(FaultPoint.LOSE)", None),
        (POINTS, CORE, "pass", "FaultPoint.LOSE: asked at 0 places, not one"),
        (
            POINTS,
            CORE,
            "a(FaultPoint.LOSE)\na(FaultPoint.LOSE)",
            "FaultPoint.LOSE: asked at 2 places, not one",
        ),
        (
            POINTS,
            "tests/unit/test_it.py",
            "a(FaultPoint.LOSE)",
            "FaultPoint.LOSE: asked at 0 places, not one",
        ),
        (POINTS[: POINTS.index("    'It")], CORE, "a(FaultPoint.LOSE)", "does not say"),
        (
            POINTS,
            SHELL,
            "import dodona_wire.cores.fault_points\na(FaultPoint.LOSE)",
            "only cores ask fault points",
        ),
    ],
)
def test_a_misused_point_is_reported(
    points: str, path: str, source: str, complaint: str | None
) -> None:
    modules = [
        module_of("client/dodona_wire/cores/fault_points.py", points),
        module_of(path, source),
    ]
    found = list(misused_points(modules))
    assert len(found) == (complaint is not None)
    assert all(complaint in it for it in found if complaint)


@pytest.mark.parametrize("name", ["notes.md", "1-x.md", "001-Title.md", "001-a_b.md", "001-x.txt"])
def test_a_badly_named_decision_is_reported(name: str) -> None:
    assert list(badly_named_decisions(["000-fine.md", name])) == [f"{name}: not NNN-title.md"]


def test_a_changelog_without_the_section_is_reported() -> None:
    assert not has_unreleased_section("# Changelog\n\nUnreleased\n\n## [0.1.0]\n")


@pytest.mark.parametrize(
    "parts",
    [
        ("cd /ro", "ot/project"),
        ("'/ho", "me/me/project'"),
        ("file:///ho", "me/me"),
        ("https://py", "pi.org/simple"),
        ("https://files.python", "hosted.org/packages"),
        ("https://registry.npm", "js.org/x"),
    ],
)
def test_a_local_reference_is_reported(parts: tuple[str, str]) -> None:
    assert len(list(local_references("x", "first line\n" + "".join(parts)))) == 1


def test_table_paths_and_remote_pages_are_no_local_references() -> None:
    text = "//home/bank/accounts https://example.com/home/x ./home/x"
    assert list(local_references("x", text)) == []
