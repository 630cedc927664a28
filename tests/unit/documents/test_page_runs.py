"""No block of any page is left out: it runs, once, or is one of those that are counted."""

import codeop
import re
from collections import Counter
from pathlib import Path

import pytest

from documents.blocks import ROOT, RUN, Block, blocks_of, commands_of, pages
from documents.page_runs import RUN_PLANS, SHOWN, SIGNATURES, run_plans
from documents.running import NotAsWritten, PageRun


def test_every_block_runs_once_or_is_counted_among_those_that_do_not() -> None:
    blocks = [block for page in pages() for block in blocks_of(page)]
    assert len(blocks) > 100
    run = Counter(block.place for plan in run_plans() for block in plan.blocks)
    assert {it.place for it in blocks if it.language in RUN} == set(run)
    assert set(run.values()) == {1}
    shown = Counter((it.page, it.language) for it in blocks if it.language not in RUN)
    assert shown.pop(SIGNATURES) > 90
    assert shown == {it: count for it, (count, _) in SHOWN.items()}, "see documents.page_runs.SHOWN"
    assert all(reason for _, reason in SHOWN.values())


def test_every_output_belongs_to_python() -> None:
    for page in pages():
        blocks = blocks_of(page)
        for before, block in zip([None, *blocks], blocks, strict=False):
            if block.language == "output":
                assert before is not None
                assert before.language == "python", block.place


def test_the_sections_that_are_named_are_there() -> None:
    for plan in RUN_PLANS:
        headings = {it.heading for it in blocks_of(plan.page)}
        assert headings.issuperset(plan.headings), plan.name


def test_skipped_commands_exist_and_are_make_targets_or_seed_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for plan in RUN_PLANS:
        commands = [
            it.text
            for block in plan.blocks
            if block.language == "console"
            for it in commands_of(block)
        ]
        for words in plan.skipped:
            assert any(it.startswith(words) for it in commands), (plan.name, words)
            target = re.escape(words.removeprefix("make "))
            is_target = re.search(rf"^{target}:", makefile, re.MULTILINE) is not None
            assert is_target or words == "python -m simulator --seeds", words


def test_the_tutorial_can_be_pasted_into_python() -> None:
    """Whose prompt wants an empty line behind what is indented, and none within."""
    blocks = [it for it in blocks_of("docs/tutorial.md") if it.language == "python"]
    pasted = [it for it in blocks if it.file_name is None]
    assert len(pasted) > 5
    for block in pasted:
        lines: list[str] = []
        for line in [*block.text.splitlines(), ""]:
            lines.append(line)
            if codeop.compile_command("\n".join(lines), block.place, "single") is not None:
                lines = []
        assert lines == [], block.place


def block(language: str, text: str, line: int = 1) -> Block:
    return Block("page.md", line, language, "", text)


def run(*blocks: Block) -> None:
    with PageRun({"127.0.0.1:8500": "127.0.0.1:20000"}) as page:
        page.run(blocks)


def test_a_page_run_compares_documented_output_with_printed_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(
        block("python", "x = 1\nprint(x, 12345678901234567890, 'http://127.0.0.1:8500')\n"),
        block("output", "1 98765432109876543210 http://127.0.0.1:8500\n"),
        block("python", "# a_file.py\nprint('http://127.0.0.1:8500')\n"),
        block("console", "$ cat a_file.py\n# a_file.py\n...8500')\n$ T=1\n$ echo $T\n1\n"),
        block("console", "$ echo what nobody compares\n"),
    )
    assert "20000" in Path("a_file.py").read_text()


@pytest.mark.parametrize(
    "blocks",
    [
        [block("python", "print(1)\n")],
        [block("python", "print(1)\n"), block("output", "2\n")],
        [block("python", "pass\n"), block("output", "2\n")],
        [block("console", "$ echo 1\n2\n")],
        [block("console", "$ echo 1\n$ echo 2\n2\n")],
        [block("console", "$ false\n")],
        [block("console", "$ T=1\n"), block("console", "$ test $T = 2\n")],
        [block("console", "$ exit 1\n")],
    ],
)
def test_a_page_run_fails_if_a_block_behaves_differently_than_written(blocks: list[Block]) -> None:
    with pytest.raises(NotAsWritten, match=r"page\.md:1"):
        run(*blocks)


def test_a_command_goes_on_in_quotes_and_behind_a_backslash() -> None:
    (first, second, third) = commands_of(block("console", "$ a '1\n2'\nsaid\n$ b \\\n  c\n$ d\n"))
    assert (first.text, first.answer) == ("a '1\n2'", "said\n")
    assert (second.text, second.answer) == ("b \\\n  c", "")
    assert third.text == "d"
    with pytest.raises(ValueError, match="begins with a command"):
        commands_of(block("console", "said\n$ a\n"))
