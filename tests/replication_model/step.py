"""A step of any model: what happens, and the state after it.

Owns: how a step reads in a trace. Must not import: a model.
"""

from typing import Generic, TypeVar

from msgspec import Struct

from replication_model.logs import Log, show

S = TypeVar("S")


class Step(Struct, Generic[S], frozen=True, gc=False):
    """One thing that can happen next."""

    action: str
    """With a `{}` for each of `details`. They are put together only for a trace."""
    details: "tuple[int | str | Log, ...]"
    state: S
    violation: str | None = None

    @property
    def text(self) -> str:
        shown = (show(it) if isinstance(it, tuple) else it for it in self.details)
        return self.action.format(*shown)
