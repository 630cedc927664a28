"""Declare which protocols have a span in a trace, and the names of these spans. Pure.

Owns: the declarations, which stand where the protocols are defined. A declaration only keeps the
code of a protocol. It wraps nothing, so a call costs the same with and without it.
"""

from collections.abc import Callable, Generator
from inspect import isgeneratorfunction
from types import CodeType
from typing import Any, Final, TypeVar

Definition = TypeVar("Definition", bound=Callable[..., Generator[Any, Any, Any]])

DECLARED: Final[dict[CodeType, str]] = {}
"""The name of each span, by the code of its protocol. Several protocols may have the same name."""


def traced_as(name: str) -> Callable[[Definition], Definition]:
    """Declare that a protocol has the span `dodona name`. The protocol must be a generator: the
    code of another function is not in what it returns."""

    def declare(definition: Definition) -> Definition:
        assert isgeneratorfunction(definition), "only a generator has its code"
        DECLARED[definition.__code__] = name
        return definition

    return declare


def span_of(protocol: Generator[Any, Any, Any]) -> str | None:
    """Return the declared name of a protocol's span, or None if it has no span."""
    code: CodeType | None = getattr(protocol, "gi_code", None)
    return None if code is None else DECLARED.get(code)
