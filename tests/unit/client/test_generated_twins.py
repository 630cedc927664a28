"""The blocking modules of the client are what `python -m twins` makes of the asyncio ones."""

import inspect
from pathlib import Path
from textwrap import dedent

import pytest

import dodona
import dodona.aio
from twins import files
from twins.files import FOLDER, ORIGINS, formatted, text_of, write_all
from twins.generating import generated, with_origin


@pytest.mark.parametrize("name", ORIGINS)
def test_a_blocking_module_equals_the_module_generated_from_asyncio(name: str) -> None:
    assert (FOLDER / name).read_text("utf-8") == text_of(name), "run `python -m twins`"


def test_every_asyncio_module_has_a_blocking_one() -> None:
    assert sorted(ORIGINS.values()) == sorted(it.name for it in FOLDER.glob("aio*.py"))


@pytest.mark.parametrize("name", ORIGINS)
def test_a_generated_module_names_its_origin_after_the_docstring(name: str) -> None:
    behind = (FOLDER / name).read_text("utf-8").split('"""\n', 1)[1]
    assert behind.startswith(f"\n# Generated from {ORIGINS[name]} by python -m twins: ")
    assert f"makes {name} of this module" in (FOLDER / ORIGINS[name]).read_text("utf-8")


RULES = {
    "async def f(): ...": "def f(): ...",
    "async with a as b:": "with a as b:",
    "async for a in b:": "for a in b:",
    "return await self._run(read)": "return self._run(read)",
    "f(await a, await b)": "f(a, b)",
    "async def __aenter__(self) -> Self:": "def __enter__(self) -> Self:",
    "__aexit__, __aiter__, __anext__": "__exit__, __iter__, __next__",
    "raise StopAsyncIteration": "raise StopIteration",
    "from collections.abc import AsyncIterator": "from collections.abc import Iterator",
    "-> Awaitable[Timestamp]:": "-> Timestamp:",
    "function: Callable[[AsyncTransaction], Awaitable[Result]]": (
        "function: Callable[[Transaction], Result]"
    ),
    "-> Coroutine[Any, Any, list[dict[str, Any]]]:": "-> list[dict[str, Any]]:",
    '-> "Beginning[AsyncTransaction]":': '-> "Transaction":',
    "return Beginning(partial(self._begin, title, f(1)))": "return self._begin(title, f(1))",
    "return self._writes.begin(insert(rows), timeout_ms)": (
        "return self._run(insert(rows), timeout_ms)"
    ),
    "await self._run_read(a); await self._run_end(b)": "self._run(a); self._run(b)",
    'describe("dodona.aio.AsyncTransaction")': 'describe("dodona.Transaction")',
    "Create it with `dodona.aio.connect`.": "Create it with `dodona.connect`.",
    "from dodona.aio_catalog import AsyncTree": "from dodona.catalog import Tree",
    "from dodona._io.aio_pinger import AsyncPinger": "from dodona._io.pinger import Pinger",
    "async_within(check_async_function)": "within(check_function)",
    "The asyncio client, in the asyncio API": "The blocking client, in the blocking API",
    "In an `async with` block": "In a `with` block",
    "the end of the `async with` block": "the end of the `with` block",
    "Any number of tasks. Only one task at a time.": (
        "Any number of threads. Only one thread at a time."
    ),
    "import asyncio": "import asyncio",
    "awaited, tasked, subtask": "awaited, tasked, subtask",
}


@pytest.mark.parametrize("source", RULES)
def test_the_generator_turns_asyncio_code_into_blocking_code(source: str) -> None:
    assert generated(source) == f"{RULES[source]}\n"


def test_marked_lines_are_left_out_or_replaced() -> None:
    source = """
        class AsyncThing:
            # asyncio only
            writes: Writes

            # end
            async def batches(self):
                self.writes.settle()  # asyncio only
                # a comment of its own
                for batch in await self.page():  # blocking: yield from self.page()
                    yield batch  # asyncio only
    """
    blocking = """
        class Thing:
            def batches(self):
                # a comment of its own
                yield from self.page()
    """
    assert generated(dedent(source)) == dedent(blocking)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("# asyncio only\na = 1", "without # end"),
        ("a = 1\n# end", "# end without"),
        ("# asyncio only\n# asyncio only\n# end", "within"),
    ],
)
def test_the_generator_refuses_an_unmatched_mark(source: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        generated(source)


ONE_LINE, BLOCK = "With asyncio, await it.", "With asyncio, await it,\n    or enter it."


@pytest.mark.parametrize("words", [ONE_LINE, BLOCK])
def test_a_paragraph_about_asyncio_is_left_out(words: str) -> None:
    for ending in ('"""', '\n"""', '\n\n    Raises Unavailable."""', '\n\n    - `a`: b\n    """'):
        source = f'"""Begin.\n\n    {words}{ending}\nx = "a\n\nb"\n'
        assert generated(source) == f'"""Begin.{ending}\nx = "a\n\nb"\n'


def test_a_file_is_named_in_the_place_of_the_other() -> None:
    source = '"""Reads."""\n\n# `python -m twins` makes reads.py of this module.\n\nimport a\n'
    line = "# Generated from aio_reads.py by python -m twins: change that, and run it."
    assert with_origin(source, "aio_reads.py") == f'"""Reads."""\n\n{line}\n\nimport a\n'
    with pytest.raises(ValueError, match=r"aio_reads\.py has no line"):
        with_origin('"""Reads."""\n', "aio_reads.py")


def test_the_generator_sorts_imports_and_removes_unused_imports() -> None:
    text = "from b import y\nfrom a import x, z\nfrom c import d as d\n\nprint(x,\n y)\n"
    better = "from a import x\nfrom b import y\nfrom c import d as d\n\nprint(x, y)\n"
    assert formatted(text, "client.py") == better
    with pytest.raises(ValueError, match=r"client\.py: .*"):
        formatted("def f(:\n", "client.py")


def test_a_change_of_one_side_is_noticed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the asyncio module, and of the generated one by hand."""
    for name in [*ORIGINS, *ORIGINS.values()]:
        (tmp_path / name).write_text((FOLDER / name).read_text("utf-8"), "utf-8")
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    assert [*write_all()] == []
    origin, by_hand = tmp_path / "aio_snapshot.py", tmp_path / "loads.py"
    changed = origin.read_text("utf-8").replace("async def check(", "async def check_now(")
    origin.write_text(changed, "utf-8")
    kept = by_hand.read_text("utf-8")
    by_hand.write_text(kept.replace("self._is_over = True", "self._is_over = False"), "utf-8")
    assert [*write_all()] == ["loads.py", "snapshot.py"]
    assert by_hand.read_text("utf-8") == kept
    assert "    def check_now(self)" in (tmp_path / "snapshot.py").read_text("utf-8")


def test_asyncio_docstrings_are_full() -> None:
    doc = inspect.getdoc(dodona.Client.query)
    assert doc is not None
    assert (inspect.getdoc(dodona.aio.AsyncClient.query) or "").startswith(doc)
