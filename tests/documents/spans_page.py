"""The spans of a client in `docs/how-to/observe.md`, as its protocols declare them.

Owns: their form.
"""

from importlib import import_module
from textwrap import fill
from typing import Final

from dodona._core.protocol.spans import DECLARED

MODULES: Final = ("dodona._core.session", "dodona_gateway.core.answer_budget")
"""The modules whose import makes all declarations."""
LINE_LENGTH_MAX: Final = 120


def spans_text() -> str:
    """Return a sentence that lists the names of the spans."""
    for module in MODULES:
        import_module(module)
    names = ", ".join(f"`{name}`" for name in sorted({*DECLARED.values()}))
    text = f"The name of a client's span is `dodona` and one of these words: {names}."
    return fill(text, LINE_LENGTH_MAX, break_on_hyphens=False)
