"""What is mutated, and which tests judge the mutants of each module.

Owns: the choice of modules, and the map from a module to its
tests. The map is made from the tests' imports, so that a new test of a module judges its mutants
without an entry here; `BESIDE` adds tests that reach a module through others. What they let live,
all unit tests of the same part judge. Must not import: any core, since it runs beside checkouts
whose cores are broken.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

CORES: Final = ("tablets/dodona_tablets/core", "oracle/dodona_oracle/core")
COMMIT_PATH: Final = tuple(
    f"client/dodona/_core/{name}.py"
    for name in (
        "beginning",
        "protocol/attempts",
        "protocol/context",
        "protocol/reserve",
        "protocol/retry",
        "protocol/routing",
        "reading/own_writes",
        "row_session",
        "writing/fast_path",
        "writing/buffer",
        "writing/committing",
        "writing/early_locks",
        "writing/outcomes",
        "writing/parts",
        "writing/reads",
        "writing/transaction",
        "writing/writing",
    )
)
"""The client's commit path."""
VALUES: Final = tuple(
    f"client/{name}.py"
    for name in (
        "dodona/_core/sql/constants",
        "dodona/_core/sql/messages",
        "dodona/_core/sql/nested_parameters",
        "dodona/_core/sql/parameters",
        "dodona/_core/writing/column_types",
        "dodona/_core/writing/logical_casting",
        "dodona/_core/writing/pandas_frames",
        "dodona/_core/writing/tabular",
        "dodona/_core/writing/whole",
        "dodona_wire/rows/logical_arrow",
        "dodona_wire/rows/logical_checks",
        "dodona_wire/rows/logical_code",
        "dodona_wire/rows/logical_parsing",
        "dodona_wire/rows/logical_types",
        "dodona_wire/rows/logical_values",
    )
)
"""What checks and converts the values of users, and the parameters of queries."""
GRAVEST: Final = (
    "tablets/dodona_tablets/core/tablet/lock_set.py",
    "tablets/dodona_tablets/core/tablet/locks.py",
    "tablets/dodona_tablets/core/commit/participant.py",
    "tablets/dodona_tablets/core/commit/taking.py",
    "tablets/dodona_tablets/core/tablet/validation.py",
    "tablets/dodona_tablets/core/tablet/read_holds.py",
    "tablets/dodona_tablets/core/rows/recent_keys.py",
    "tablets/dodona_tablets/core/commit/coordinator.py",
    "tablets/dodona_tablets/core/rows/store.py",
    "client/dodona/_core/writing/transaction.py",
    "client/dodona/_core/writing/buffer.py",
    "client/dodona/_core/writing/committing.py",
    "client/dodona/_core/writing/reads.py",
    "oracle/dodona_oracle/core/allocator.py",
    "tablets/dodona_tablets/core/cell/early_locks.py",
    "tablets/dodona_tablets/core/commit/lines.py",
    "tablets/dodona_tablets/core/commit/admission.py",
    "tablets/dodona_tablets/core/rows/retention.py",
    "tablets/dodona_tablets/core/rows/version.py",
)
"""They come first: a bug there loses writes."""

TEST_FOLDERS: Final = ("tests/unit", "tests/properties")
PARTS: Final = {
    "tablets": "tests/unit/tablets",
    "oracle": "tests/unit/oracle",
    "client": "tests/unit/client",
}
"""By the module's top folder: many tests reach one module through another."""
BESIDE: Final = {
    "tablets/dodona_tablets/core/tablet/lock_set.py": (
        "tests/unit/tablets/test_row_locks.py",
        "tests/unit/tablets/test_participant.py",
    ),
    "tablets/dodona_tablets/core/tablet/locks.py": (
        "tests/unit/tablets/test_row_locks.py",
        "tests/unit/tablets/test_participant.py",
        "tests/unit/tablets/test_blind.py",
    ),
    "tablets/dodona_tablets/core/tablet/validation.py": ("tests/unit/tablets/test_validation.py",),
    "tablets/dodona_tablets/core/tablet/read_holds.py": ("tests/unit/tablets/test_validation.py",),
    "tablets/dodona_tablets/core/rows/recent_keys.py": (
        "tests/unit/tablets/test_recent_keys.py",
        "tests/unit/tablets/test_validation.py",
    ),
    "tablets/dodona_tablets/core/commit/admission.py": ("tests/unit/tablets/test_participant.py",),
    "tablets/dodona_tablets/core/commit/coordinator.py": (
        "tests/unit/tablets/test_coordinator.py",
    ),
    "tablets/dodona_tablets/core/cell/early_locks.py": ("tests/unit/tablets/test_early_locks.py",),
    "tablets/dodona_tablets/core/commit/lines.py": ("tests/unit/tablets/test_early_locks.py",),
    "tablets/dodona_tablets/core/requests/locking.py": ("tests/unit/tablets/test_early_locks.py",),
    "tablets/dodona_tablets/core/commit/participant.py": (
        "tests/unit/tablets/test_participant.py",
    ),
    "tablets/dodona_tablets/core/commit/taking.py": (
        "tests/unit/tablets/test_participant.py",
        "tests/unit/tablets/test_blind.py",
    ),
    "oracle/dodona_oracle/core/definitions.py": ("tests/unit/oracle/test_attributes.py",),
    "oracle/dodona_oracle/core/nodes.py": ("tests/unit/oracle/test_attributes.py",),
    "client/dodona/_core/writing/committing.py": (
        "tests/unit/client/test_committing.py",
        "tests/unit/client/test_outcomes.py",
    ),
    "client/dodona/_core/row_session.py": (
        "tests/unit/client/test_committing.py",
        "tests/unit/client/test_outcomes.py",
        "tests/unit/client/test_transaction.py",
        "tests/unit/simulator/test_loads.py",
    ),
}


class Seed(NamedTuple):
    """One short run of the simulator."""

    workload: str
    seed: int
    seconds: int


SEEDS: Final = {
    "tablets": (
        Seed("slow_transactions", 1, 6),
        Seed("column_groups", 2, 4),
        Seed("loads", 3, 4),
        Seed("retention", 4, 6),
        Seed("hot_rows", 5, 4),
        Seed("serializable", 6, 6),
        Seed("serializable_write_skew", 7, 4),
    ),
    "oracle": (Seed("bank", 1, 4), Seed("sideband", 2, 4)),
    "client": (
        Seed("blind", 1, 4),
        Seed("slow_transactions", 2, 4),
        Seed("hot_rows", 3, 4),
        Seed("serializable", 4, 4),
    ),
}
"""By the module's top folder: after its tests, since they take longer."""


def modules_in(root: Path) -> list[str]:
    """All that is mutated, the gravest first, relative to the checkout."""
    found = [
        path.relative_to(root).as_posix()
        for folder in CORES
        for path in sorted((root / folder).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    found += [*COMMIT_PATH, *VALUES]
    return sorted(found, key=lambda it: GRAVEST.index(it) if it in GRAVEST else len(GRAVEST))


def name_of(module: str) -> str:
    """The name under which it is imported: the top folder is not part of it."""
    return ".".join(Path(module).with_suffix("").parts[1:])


def part_of(module: str) -> str:
    """The top folder."""
    return module.partition("/")[0]


def modules_of(root: Path, part: str) -> list[str]:
    return [it for it in modules_in(root) if part_of(it) == part]


def judges_of(root: Path, module: str) -> list[str]:
    """Test files that import the module, and those that reach it through others; those of its part
    come last, so that only a mutant that nobody noticed pays for them."""
    folder = PARTS[part_of(module)]
    others = [test for test in _imports_by_test(root) if test.startswith(f"{folder}/")]
    return list(dict.fromkeys([*near_judges_of(root, module), *others]))


def near_judges_of(root: Path, module: str) -> list[str]:
    """Those that import the module, and that are known to reach it. They judge what needs a new
    process: all tests of the part would take minutes each time."""
    return list(dict.fromkeys([*BESIDE.get(module, ()), *_importing(root, module)]))


def _importing(root: Path, module: str) -> list[str]:
    name = name_of(module)
    return [test for test, imports in _imports_by_test(root).items() if name in imports]


def judges_of_part(root: Path, part: str) -> list[str]:
    """All that judge modules of a part."""
    return sorted({test for it in modules_of(root, part) for test in judges_of(root, it)})


@cache
def _imports_by_test(root: Path) -> dict[str, set[str]]:
    """Parsing all tests takes seconds."""
    return {
        path.relative_to(root).as_posix(): imports_of(path.read_text("utf-8"))
        for folder in TEST_FOLDERS
        for path in sorted((root / folder).rglob("test_*.py"))
    }


def imports_of(source: str) -> set[str]:
    """The names of all modules that a source may import: of `from a import b` both a and a.b."""
    return set(_imported(ast.parse(source)))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def seeds_of(module: str) -> tuple[Seed, ...]:
    return SEEDS[part_of(module)]


def hash_of(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
