"""A mutant of a module that is imported already: its functions get the mutant's code.

Owns: what differs between the code of a module and of its mutant, and whether that can be swapped.
A mutant inside of functions can be: whoever has imported one has the same function object. One of
what runs while the module is imported (a constant, a default, a decorator) can't. Must not import:
any core.
"""

import gc
import inspect
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

COMPREHENSIONS: Final = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
CACHE: Final[type[Any]] = type(lru_cache(len))
"""The type of functions that `functools.cache` and `lru_cache` make."""


class Place(NamedTuple):
    """A function, by its qualified name and its first line: mutants move no lines."""

    name: str
    line: int


def changed_functions(before: CodeType, after: CodeType) -> dict[Place, CodeType] | None:
    """New code of each function that differs, with those around it; None where something else
    differs as well, or where a place has several functions."""
    if _outline(before) != _outline(after):
        return None
    old, new = _functions(before), _functions(after)
    if old is None or new is None or old.keys() != new.keys():
        return None
    return {place: code for place, code in new.items() if code != old[place]}


def _outline(code: CodeType) -> CodeType:
    """What runs while a module, or the body of a class, is made: without its functions' code, and
    without columns, of which one is where the last line of a function ends."""
    constants = (
        (None if _is_function(it) else _outline(it)) if isinstance(it, CodeType) else it
        for it in code.co_consts
    )
    return code.replace(co_consts=tuple(constants), co_linetable=b"")


def _functions(code: CodeType) -> dict[Place, CodeType] | None:
    found: dict[Place, CodeType] = {}
    for it in _all_functions(code):
        if found.setdefault(Place(it.co_qualname, it.co_firstlineno), it) is not it:
            return None
    return found


def _all_functions(code: CodeType) -> Iterator[CodeType]:
    for it in code.co_consts:
        if isinstance(it, CodeType):
            if _is_function(it):
                yield it
            yield from _all_functions(it)


def _is_function(code: CodeType) -> bool:
    """A comprehension is a part of the code around it, which makes it anew each time."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_name not in COMPREHENSIONS


def swap(file: str, changed: Mapping[Place, CodeType]) -> None:
    """Give each function of a file that there is now its new code, and forget what the file's
    functions returned before."""
    for it in gc.get_objects():
        if isinstance(it, FunctionType) and it.__code__.co_filename == file:
            place = Place(it.__code__.co_qualname, it.__code__.co_firstlineno)
            if place in changed:
                it.__code__ = changed[place]
    clear(caches_of({file}))


def caches_of(files: Collection[str]) -> list[Any]:
    """Return the cached functions of these files."""
    return [
        it
        for it in gc.get_objects()
        if type(it) is CACHE
        and isinstance(it.__wrapped__, FunctionType)
        and it.__wrapped__.__code__.co_filename in files
    ]


def clear(caches: Collection[Any]) -> None:
    """Forget the results of cached functions. With a result, a check would not reach the
    function."""
    for it in caches:
        it.cache_clear()
