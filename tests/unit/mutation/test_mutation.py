"""Mutation testing itself: what is planned, the copy it works in, and what it makes of mutants."""

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mutation import __main__ as program
from mutation import equivalent, judge, report, session
from mutation.bench import Answer, Request
from mutation.checkout import refresh
from mutation.equivalent import EQUIVALENT
from mutation.left_out import EXCLUDED, left_out_of
from mutation.mutant import Equivalent, Fate, Mutant
from mutation.plan import (
    BESIDE,
    GRAVEST,
    imports_of,
    judges_of,
    modules_in,
    near_judges_of,
    seeds_of,
)
from mutation.report import Line
from mutation.runner import BaselineFailed, OnDisk
from mutation.session import ModuleSession

ROOT = Path(__file__).resolve().parents[3]
LOCKS = "tablets/dodona_tablets/core/tablet/locks.py"


def test_the_mutation_plan_names_existing_files_and_begins_with_the_gravest() -> None:
    modules = modules_in(ROOT)
    assert tuple(modules[: len(GRAVEST)]) == GRAVEST
    assert len(modules) == len(set(modules)) > 80
    named = [*modules, *BESIDE, *(test for tests in BESIDE.values() for test in tests)]
    assert [it for it in named if not (ROOT / it).is_file()] == []


def test_the_gravest_have_tests_and_seeds() -> None:
    for module in GRAVEST:
        assert judges_of(ROOT, module), module
        assert seeds_of(module), module


def test_the_tests_of_a_module_are_found_by_their_imports() -> None:
    source = "import a.b\nfrom c.d import e, f as g\ndef h():\n    from i import j\n"
    assert imports_of(source) == {"a.b", "c.d", "c.d.e", "c.d.f", "i", "i.j"}
    judges = judges_of(ROOT, LOCKS)
    near = near_judges_of(ROOT, LOCKS)
    assert judges[: len(near)] == near
    assert len(near) < len(judges) / 4
    assert "tests/unit/tablets/test_row_locks.py" in judges[:3]
    assert "tests/unit/tablets/test_freezing.py" in judges[3:], "it reaches locks through others"
    assert len(judges) == len(set(judges))


@pytest.mark.parametrize(
    ("operator", "is_left_out"),
    [
        ("ReplaceComparisonOperator_Lt_LtE", False),
        ("ReplaceComparisonOperator_Lt_Eq", True),
        ("ReplaceBinaryOperator_Add_Sub", False),
        ("ReplaceBinaryOperator_Add_Pow", True),
        ("ReplaceAndWithOr", False),
        ("NumberReplacer", False),
        ("RemoveDecorator", True),
        ("ReplaceUnaryOperator_Delete_Not", False),
        ("ReplaceUnaryOperator_USub_Invert", True),
    ],
)
def test_changes_that_add_little_are_left_out(operator: str, is_left_out: bool) -> None:
    assert bool(EXCLUDED.match(f"core/{operator}")) is is_left_out


SOURCE = """
LIMIT = 1000
FIRST = 1
BYTES_MAX = 1 << 16
@lru_cache(2000)
def cached(a=0):
    return a << 1
class Given(Struct, frozen=True):
    waits: int = 60 * SECOND
def take(count: str | None = 5) -> float | None:
    assert count < 9
    if self._injects_faults and self._fault_at(A):
        count += 3
    if count > 7 and self._fault_at(B):
        return Given(waits=4, fault_at=True)
    return dict(zip(names, [6 if it else 8 for it in values], strict=True))
"""


@pytest.mark.parametrize(
    ("operator", "text", "is_left_out"),
    [
        ("NumberReplacer", "1000", True),
        ("NumberReplacer", "1\n", False),
        ("NumberReplacer", "1 << 16", True),
        ("NumberReplacer", "16\n", True),
        ("NumberReplacer", "2000", True),
        ("NumberReplacer", "0):", False),
        ("NumberReplacer", "1\nclass", False),
        ("ReplaceTrueWithFalse", "True):", True),
        ("NumberReplacer", "60", True),
        ("ReplaceBinaryOperator_Mul_Add", "* SECOND", False),
        ("ReplaceComparisonOperator_Lt_LtE", "< 9", True),
        ("ReplaceAndWithOr", "and self._fault_at(A)", True),
        ("NumberReplacer", "3\n", True),
        ("NumberReplacer", "7", False),
        ("ReplaceAndWithOr", "and self._fault_at(B)", False),
        ("AddNot", "self._fault_at(B)", True),
        ("NumberReplacer", "4,", False),
        ("NumberReplacer", "4", False),
        ("ReplaceTrueWithFalse", "True)\n", False),
        ("ReplaceBinaryOperator_BitOr_BitAnd", "| None =", True),
        ("ReplaceBinaryOperator_BitOr_BitAnd", "| None:", True),
        ("NumberReplacer", "6 if", False),
        ("ReplaceTrueWithFalse", "True))", True),
    ],
)
def test_places_where_no_test_should_notice_a_mutant_are_left_out(
    operator: str, text: str, is_left_out: bool
) -> None:
    before = SOURCE[: SOURCE.index(text)]
    place = (before.count("\n") + 1, len(before) - before.rfind("\n") - 1)
    assert left_out_of(SOURCE).has(f"core/{operator}", place) is is_left_out


def test_a_copy_is_made_equal_again(tmp_path: Path) -> None:
    root, copy = tmp_path / "root", tmp_path / "copy"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "a.py").write_text("1")
    (root / "pyproject.toml").write_text("")
    (root / "other.txt").write_text("not a part of it")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    refresh(root, copy)
    (copy / "tests" / "a.py").write_text("mutated")
    (copy / "tests" / "gone.py").write_text("")
    refresh(root, copy)
    found = sorted(it.relative_to(copy).as_posix() for it in copy.rglob("*") if it.is_file())
    assert found == ["pyproject.toml", "tests/a.py"]
    assert (copy / "tests" / "a.py").read_text() == "1"


def on_disk(command: str) -> session.Judge:
    judge = OnDisk(command.split())
    return lambda requests: map(judge.judge, requests)


def nobody(requests: Iterable[Request]) -> Iterator[Answer]:
    assert list(requests) == []
    return iter(())


def test_mutants_are_judged_once_and_a_better_test_judges_survivors_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text("def is_less(a, b):\n    return a < b\n")
    check = Path("check.py")
    check.write_text("from toy import is_less\nassert is_less(1, 2)\n")
    judge = on_disk(f"{sys.executable} -B check.py")
    until = time.monotonic() + 100
    said: list[str] = []
    first = ModuleSession(tmp_path, "toy.py", ["check.py"])
    first.open()
    assert first.left_count > 0
    assert first.run(judge, until, 1, said.append) == 1
    left_count = first.left_count
    again = ModuleSession(tmp_path, "toy.py", ["check.py"])
    again.open()
    assert again.run(judge, until, 100, said.append) == left_count
    assert again.left_count == 0
    alive = [it for it in again.mutants() if it.fate == "survived"]
    assert [(it.line, it.diff) for it in alive] == [(2, ("- return a < b", "+ return a <= b"))]
    assert len(said) == 1
    (line,) = (it.diff[0][2:] for it in alive)
    known = Equivalent("toy.py", line, "return a <= b", "in this test")
    monkeypatch.setattr(equivalent, "EQUIVALENT", (known,))
    check.write_text(check.read_text() + "# another hash\n")
    unseen = ModuleSession(tmp_path, "toy.py", ["check.py"])
    unseen.open()
    assert unseen.run(nobody, until, 100, said.append) == 1, "nobody judges it"
    assert len(said) == 1
    monkeypatch.setattr(equivalent, "EQUIVALENT", ())
    check.write_text(check.read_text() + "assert not is_less(1, 1)\n")
    better = ModuleSession(tmp_path, "toy.py", ["check.py"])
    better.open()
    assert better.run(judge, until, 100, said.append) == 1, "only the survivor"
    assert {it.fate for it in better.mutants()} == {"killed"}


def test_each_exception_of_a_handler_is_replaced_also_one_with_a_dotted_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text("try:\n    a()\nexcept (b.C, D, e.f.G):\n    a()\n")
    it = ModuleSession(tmp_path, "toy.py", [])
    it.open()
    asked: list[Request] = []

    def judge(requests: Iterable[Request]) -> Iterator[Answer]:
        asked.extend(requests)
        return (Answer(it.number, "killed", "") for it in asked)

    assert it.run(judge, time.monotonic() + 100, 9, print) == 3
    handlers = {it.source.splitlines()[2] for it in asked}
    name = "CosmicRayTestingException"
    assert handlers == {
        f"except ({', '.join(names)}):"
        for names in ((name, "D", "e.f.G"), ("b.C", name, "e.f.G"), ("b.C", "D", name))
    }


def test_tests_that_fail_without_a_mutant_judge_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.py").write_text("a = 1 + 1\n")
    it = ModuleSession(tmp_path, "toy.py", [])
    it.open()
    judge = on_disk(f"{sys.executable} -c import.nothing")
    with pytest.raises(BaselineFailed, match="fails without a mutant"):
        it.run(judge, time.monotonic() + 100, 9, print)


@pytest.mark.slow("runs tests for each mutant")
def test_a_mutant_is_killed_by_a_test_or_by_a_simulator_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = tmp_path / "test_it.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(judge, "simulate_all", lambda _: 7)
    code = "import sys, mutation.judge as it; sys.exit(it.test(sys.argv[1:]))"
    ran = [sys.executable, "-c", code, "test_it.py"]
    for text, status in (("assert True", 0), ("assert False", 1)):
        check.write_text(f"def test_it():\n    {text}\n")
        assert subprocess.run(ran, capture_output=True, check=False).returncode == status
    monkeypatch.setattr(judge, "test", lambda _: 0)
    assert judge.main(["m.py"]) == 7
    monkeypatch.setattr(judge, "test", lambda _: 1)
    assert judge.main(["m.py"]) == 1


def test_a_second_run_in_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "FOLDER", tmp_path)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match="Another run uses"):
            program.main(["--report"])
    assert [it.name for it in tmp_path.iterdir()] == ["lock"], "it copied nothing"


def mutant(fate: Fate, after: str = "b") -> Mutant:
    return Mutant("m.py", 3, "core/Some", ("- a", f"+ {after}"), fate)


def test_the_report_has_a_table_of_mutants_and_a_list_of_survivors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Equivalent("m.py", "a", "same", "no caller sees it")
    monkeypatch.setattr(equivalent, "EQUIVALENT", (known,))
    mutants = [mutant("killed"), mutant("survived"), mutant("survived", "same")]
    lines = [Line("m.py", mutants, 4), Line("none.py", [], 9)]
    assert lines[0].cells == ("m.py", 7, 1, 1, 1, 4)
    text = report.table(lines)
    assert "| `m.py` | 7 | 1 | 1 | 1 | 4 |" in text
    assert "| `none.py` | 9 | 0 | 0 | 0 | 9 |" in text
    assert "| together | 16 | 1 | 1 | 1 | 13 |" in text
    assert report.survivors(lines) == "m.py:3 Some\n  - a\n  + b"


def test_equivalent_mutants_are_of_lines_that_are_there() -> None:
    for it in EQUIVALENT:
        lines = [line.strip() for line in (ROOT / it.module).read_text("utf-8").splitlines()]
        assert it.before in lines, it
        assert it.after != it.before
        assert it.reason
    assert len(EQUIVALENT) == len({json.dumps(it[:3]) for it in EQUIVALENT})
