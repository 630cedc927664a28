"""The trace of the model that the page on replication shows.

Owns: which planted bug it is of. Its search takes a moment only.
"""

from typing import Final

from replication_model.explorer import explore
from replication_model.planted import BUGS
from replication_model.report import show_trace

SHOWN: Final = "an empty disk keeps its place in the set"


def trace_text() -> str:
    """Return the shortest trace of one planted bug."""
    (bug,) = [it for it in BUGS if it.title == SHOWN]
    shown = show_trace(explore(bug.make()))
    return f"The trace of {bug.rule}, *{bug.title}*:\n\n```text\n{shown}\n```"
