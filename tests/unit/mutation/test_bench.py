"""The bench: which mutants it can judge, and that each of its verdicts is right."""

import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from mutation.bench import KILLED, NOT_SWAPPED, SURVIVED, Request
from mutation.plan import CORES, judges_of_part, modules_of, part_of
from mutation.reach import record, remembered
from mutation.runner import BaselineFailed, Bench, OnDisk, Runner
from mutation.swapping import Place, caches_of, changed_functions, clear, swap

ROOT = Path(__file__).resolve().parents[3]
TOY = """\
LIMIT = 3


class Account:
    count_max = LIMIT

    def is_full(self, count, spare=1):
        def beyond(it):
            return it + spare > self.count_max

        return beyond(count)


def forever(limit):
    while limit > 0:
        limit -= 1


def crash(is_real=False):
    import os

    if is_real:
        os.kill(os.getpid(), 9)


def unused(a):
    return a + 1
"""
TESTS = """\
import threading

from toy import Account, crash, forever


def test_full():
    assert [Account().is_full(it) for it in (2, 3)] == [False, True]


def test_end():
    thread = threading.Thread(target=forever, args=(1,))
    thread.start()
    thread.join()
    crash()
"""


def code_of(text: str, file: str = "toy.py") -> CodeType:
    return compile(text, file, "exec", dont_inherit=True)


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("spare > self", "spare >= self", {"Account.is_full", "Account.is_full.<locals>.beyond"}),
        ("a + 1", "a - 1", {"unused"}),
        ("beyond(count)", "beyond(not count)", {"Account.is_full"}),  # its end moves
        ("a + 1", "a + 1  # the same", set()),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("count_max = LIMIT", "count_max = -LIMIT", None),
        ("spare=1", "spare=2", None),
        ("def unused(a):\n    return a + 1", "", None),
    ],
)
def test_a_change_of_code_that_runs_at_import_cannot_be_swapped(
    before: str, after: str, names: set[str] | None
) -> None:
    changed = changed_functions(code_of(TOY), code_of(TOY.replace(before, after)))
    assert (changed if changed is None else {it.name for it in changed}) == names


def test_two_functions_at_one_place_are_not_distinguished() -> None:
    text = "a, b = lambda: 1, lambda: 2\n"
    assert changed_functions(code_of(text), code_of(text.replace("2", "3"))) is None


def test_two_comprehensions_in_a_line_are_parts_of_their_function() -> None:
    text = "def ends(a):\n    return [b + 1 for b in a], [b + 2 for b in a]\n"
    changed = changed_functions(code_of(text), code_of(text.replace("+ 2", "- 2")))
    assert changed is not None
    assert [it.name for it in changed] == ["ends"]
    at_import = "ends = [b + 1 for b in range(9)]\n"
    assert changed_functions(code_of(at_import), code_of(at_import.replace("+", "-"))) is None


def test_swapped_functions_are_those_that_others_have(tmp_path: Path) -> None:
    file = str(tmp_path / "toy.py")
    module: dict[str, Any] = {"__name__": "toy"}
    exec(code_of(TOY, file), module)
    has = module["Account"]().is_full
    changed = changed_functions(code_of(TOY), code_of(TOY.replace("> self", ">= self"), file))
    assert changed is not None
    assert not has(2)
    swap(file, changed)
    assert has(2)


def test_a_result_that_a_cache_kept_hides_no_mutant_and_no_call(tmp_path: Path) -> None:
    text = "from functools import cache\n\n@cache\ndef double(a):\n    return a * 2\n"
    file = str(tmp_path / "toy.py")
    module: dict[str, Any] = {"__name__": "toy"}
    exec(code_of(text, file), module)
    double = module["double"]
    assert double(5) == 10
    changed = changed_functions(code_of(text, file), code_of(text.replace("* 2", "+ 2"), file))
    assert changed is not None
    swap(file, changed)
    assert double(5) == 7
    caches = caches_of({file})
    assert caches == [double]
    assert record("it", "here", lambda: bool(double(5)), {file}).reached == {}
    clear(caches)
    assert record("it", "here", lambda: bool(double(5)), {file}).reached == {
        file: [Place("double", 3)]
    }


def test_a_check_s_record_has_functions_of_the_files_only(tmp_path: Path) -> None:
    file = str(tmp_path / "toy.py")
    module: dict[str, Any] = {"__name__": "toy"}
    exec(code_of(TOY, file), module)
    made = record("it", "here", lambda: bool(module["Account"]().is_full(3)), {file})
    places = [Place("Account.is_full", 7), Place("Account.is_full.<locals>.beyond", 8)]
    assert (made.is_passed, made.reached) == (True, {file: places})
    assert sys.gettrace() is None


START = """\
import sys
import mutation.bench as it
it.modules_of = lambda *_: ["toy.py"]
it.judges_of_part = lambda *_: ["test_toy.py"]
it.SEEDS = {"toy": ()}
it.SECONDS_MIN = 2
it.main(["toy", *sys.argv[1:]])
"""
Start = Callable[[], Bench]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    Path("toy.py").write_text(TOY)
    Path("test_toy.py").write_text(TESTS)
    memory = str(tmp_path / "reach.json")
    command = [sys.executable, "-B", "-c", START, "2", memory]
    return partial(Bench, command, tmp_path / "bench.log", 2)


FATES = {
    ("spare > self", "spare >= self"): KILLED,
    ("limit -= 1", "limit -= 0"): KILLED,  # after its time
    ("if is_real", "if not is_real"): KILLED,  # its process ends
    ("a + 1", "a - 1"): SURVIVED,  # no test reaches it
    ("limit > 0", "limit > 1"): SURVIVED,
    ("a + 1", "a + 1 "): SURVIVED,  # the same code
    ("LIMIT = 3", "LIMIT = 4"): NOT_SWAPPED,
    ("a + 1", "a + ("): NOT_SWAPPED,
}


def requests() -> list[Request]:
    texts = [TOY.replace(before, after) for before, after in FATES]
    return [Request(number, "toy.py", text) for number, text in enumerate(texts)]


@pytest.mark.slow("runs tests for each mutant")
def test_the_bench_gives_each_mutant_the_expected_verdict(start: Start, tmp_path: Path) -> None:
    with closing(start()) as bench:
        fates = {it.number: it.fate for it in bench.judge(requests())}
    assert [fates[number] for number in range(len(FATES))] == list(FATES.values())
    with closing(start()) as again:
        (answer,) = again.judge(requests()[:1])
        assert "test_full" in answer.why
    assert Path("toy.py").read_text() == TOY


@pytest.mark.slow("runs tests for each mutant")
def test_only_changed_tests_run_again_to_record_the_code_that_they_reach(
    start: Start, tmp_path: Path
) -> None:
    memory = tmp_path / "reach.json"
    for text, count in ((TESTS, 2), (TESTS, 2), (TESTS + "\n", 4)):
        Path("test_toy.py").write_text(text)
        start().close()
        assert len(list(remembered(memory))) == count
    memory.write_text(memory.read_text()[:-9])
    start().close()
    assert len(list(remembered(memory))) == 4, "the one that was cut off is made again"


def test_a_mutant_that_cannot_be_swapped_is_judged_on_disk(start: Start) -> None:
    tests = "import toy; a = toy.Account(); assert not a.is_full(2) and a.is_full(3)"
    on_disk = OnDisk([sys.executable, "-B", "-c", tests])
    with closing(start()) as bench:
        fates = [it.fate for it in Runner(bench, on_disk).judge(requests()[-2:])]
    assert fates == [KILLED, KILLED]
    assert Path("toy.py").read_text() == TOY


def test_tests_that_fail_without_a_mutant_are_named(start: Start) -> None:
    Path("test_toy.py").write_text(TESTS.replace("[False, True]", "[True, True]"))
    with pytest.raises(BaselineFailed, match="test_full"):
        start()


def test_tests_that_end_the_process_are_an_error(start: Start) -> None:
    Path("test_toy.py").write_text(TESTS + "\n\ndef test_over():\n    import os\n    os._exit(3)\n")
    with pytest.raises(BaselineFailed, match="ended"):
        start()


def test_each_part_has_tests() -> None:
    for part in {part_of(it) for it in CORES} | {"client"}:
        assert modules_of(ROOT, part), part
        assert any(it.startswith(f"tests/unit/{part}/") for it in judges_of_part(ROOT, part)), part
