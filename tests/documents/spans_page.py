"""The spans of a client in `docs/how-to/observe.md`, as its protocols declare them.

Owns: their form, and which modules declare one: a client imports some of them on first use.
"""

from importlib import import_module
from textwrap import fill
from types import CodeType
from typing import Final

from documents.blocks import ROOT
from dodona._core.protocol.spans import DECLARED

LINE_LENGTH_MAX: Final = 120


def declared_spans() -> dict[CodeType, str]:
    """The name of each span, by the code of its protocol, of all modules of the client."""
    folder = ROOT / "client"
    for path in sorted(folder.rglob("*.py")):
        if "@traced_as(" in path.read_text("utf-8"):
            import_module(".".join(path.relative_to(folder).with_suffix("").parts))
    return DECLARED


def spans_text() -> str:
    """Return a sentence that lists the names of the spans."""
    names = ", ".join(f"`{name}`" for name in sorted({*declared_spans().values()}))
    text = f"The name of a client's span is `dodona` and one of these words: {names}."
    return fill(text, LINE_LENGTH_MAX, break_on_hyphens=False)
