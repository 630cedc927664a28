"""What the source says of a class or a function: signatures as they were written, docstrings, also
those of fields.

Owns: reading them. Annotations are taken from the source, where they have the names that a reader
knows, and defaults that are constants of ours from what is running, so that they have their values.
"""

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from dodona._core.catalog.master_transaction import RowsRefused

LINE_LENGTH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Member:
    """Of a class: a method, a property or a field."""

    name: str
    signature: str
    doc: str


@functools.cache
def _tree(thing: Any) -> Any:
    if isinstance(thing, type):
        return _class_tree(thing.__module__, thing.__name__)
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def _class_tree(module: str, name: str) -> ast.ClassDef:
    """Of a class that the module defines, or has from the one that does."""
    for node in ast.parse(inspect.getsource(import_module(module))).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [it.name for it in node.names]:
            assert node.module is not None
            return _class_tree(node.module, name)
    raise LookupError(f"{module} has no class {name}")


def signature_of(function: Callable[..., Any], known: frozenset[str] = frozenset()) -> str:
    """As in a stub. Names of defaults that are not `known` to the reader are replaced by values."""
    node = _tree(function)
    arguments = _shown_arguments(node.args, function, known)
    returns = f" -> {_shown(node.returns)}" if node.returns is not None else ""
    line = f"{node.name}({', '.join(arguments)}){returns}"
    if len(line) <= LINE_LENGTH_MAX:
        return line
    return "\n".join([f"{node.name}(", *(f"    {it}," for it in arguments), f"){returns}"])


def _shown_arguments(
    arguments: ast.arguments, function: Callable[..., Any], known: frozenset[str]
) -> list[str]:
    values = inspect.signature(function).parameters
    names = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(names) - len(arguments.defaults)) + [*arguments.defaults]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown = [
        _argument(it, default, values, known)
        for it, default in zip(names, defaults, strict=True)
        if it.arg not in ("self", "cls")
    ]
    if arguments.kwonlyargs:
        shown += ["*", *(_argument(it, default, values, known) for it, default in keywords)]
    if arguments.kwarg is not None:
        shown.append(f"**{_argument(arguments.kwarg, None, values, known)}")
    return shown


def _argument(node: ast.arg, default: ast.expr | None, values: Any, known: frozenset[str]) -> str:
    kind = "" if node.annotation is None else f": {_shown(node.annotation)}"
    if default is None:
        return f"{node.arg}{kind}"
    is_hidden = isinstance(default, ast.Name) and default.id not in known
    value = repr(values[node.arg].default) if is_hidden else ast.unparse(default)
    return f"{node.arg}{kind} = {value}"


def _shown(annotation: ast.expr) -> str:
    return ast.unparse(annotation).strip("'\"")


def methods_of(kind: type, known: frozenset[str]) -> list[Member]:
    """Public methods and properties, its own before those of its bases, as they are written."""
    found: dict[str, Member] = {}
    for owner in kind.__mro__:
        if owner.__module__.startswith("dodona") and owner is not RowsRefused:
            for name, value in vars(owner).items():
                if not name.startswith("_") and name not in found:
                    found |= {it.name: it for it in _member(name, value, known)}
    return list(found.values())


def _member(name: str, value: Any, known: frozenset[str]) -> Iterator[Member]:
    if isinstance(value, property):
        node = _tree(value.fget)
        returns = "" if node.returns is None else f": {_shown(node.returns)}"
        yield Member(name, f"{name}{returns}", inspect.getdoc(value) or "")
    elif isinstance(value, classmethod | staticmethod):
        function = value.__func__
        yield Member(name, signature_of(function, known), inspect.getdoc(function) or "")
    elif inspect.isfunction(value):
        yield Member(name, signature_of(value, known), inspect.getdoc(value) or "")


def fields_of(kind: type) -> Iterator[Member]:
    """Fields of a struct, a dataclass or a named tuple, and members of an enum."""
    docs = field_docs(kind)
    for node in _tree(kind).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = "" if node.value is None else f" = {ast.unparse(node.value)}"
            name = node.target.id
            yield Member(name, f"{name}: {_shown(node.annotation)}{value}", docs.get(name, ""))
        elif isinstance(node, ast.Assign) and not ast.unparse(node).startswith("_"):
            yield Member(ast.unparse(node.targets[0]), ast.unparse(node), "")


def field_docs(kind: type) -> dict[str, str]:
    """By field: the text behind it."""
    docs = {}
    for node, after in itertools.pairwise(_tree(kind).body):
        match node, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                docs[name] = inspect.cleandoc(str(text))
    return docs
