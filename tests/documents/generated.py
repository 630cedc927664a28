"""Which parts of which pages are made of the code, and how.

Owns: the list. A page keeps what is around its part (see `dodona_loadtest.harness.document`).
"""

from collections.abc import Callable, Mapping
from typing import Final

from documents.api_page import api_text
from documents.blocks import DOCS
from documents.cli_page import commands_text
from documents.figures_page import figures_text
from documents.metrics_page import metrics_text
from documents.model_page import trace_text
from documents.settings_page import settings_text
from documents.spans_page import spans_text
from documents.types_page import types_text
from dodona_loadtest.harness.document import write_section

GENERATED: Final[Mapping[str, tuple[str, Callable[[], str]]]] = {
    "explanation/replication.md": ("model trace", trace_text),
    "how-to/choose-atomicity-and-durability.md": ("figures", figures_text),
    "how-to/observe.md": ("spans", spans_text),
    "reference/api.md": ("api", api_text),
    "reference/cli-options.md": ("commands", commands_text),
    "reference/metrics.md": ("metrics", metrics_text),
    "reference/settings.md": ("settings", settings_text),
    "reference/types.md": ("types", types_text),
}
"""By page: the name of its part, and what makes it."""


def write_all() -> list[str]:
    """Write every part anew. → the pages that changed."""
    changed = []
    for name, (section, make) in GENERATED.items():
        path = DOCS / name
        before = path.read_text("utf-8")
        write_section(path, section, make())
        if path.read_text("utf-8") != before:
            changed.append(name)
    return changed
