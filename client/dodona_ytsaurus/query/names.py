"""Name the columns of a result that the query gave no name. Pure.

Owns: YTsaurus's way of writing an expression: `(a)+(b)`, `sum(b)`, `t.a`. A column alone keeps its
name, after the name of its table if the query gave the table one. Inside an expression, names that
are no identifiers are in brackets.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from dodona_wire.expressions.tree import (
    Alias,
    Between,
    Binary,
    Call,
    Case,
    In,
    Like,
    Literal,
    Logical,
    Node,
    Reference,
    Row,
    Transform,
    Tuple,
    Unary,
)
from dodona_wire.expressions.values import Constant, Kind

NAME_LENGTH_MAX: Final = 1 << 12
"""A longer name is cut: a query can't refer to it, and results carry it."""
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ESCAPES: Final = {ord('"'): '\\"', ord("\\"): "\\\\", 10: "\\n", 13: "\\r", 9: "\\t"}


def name_of(node: Node) -> str:
    """Return the name of the column that an expression becomes."""
    if isinstance(node, Alias):
        return node.name
    if isinstance(node, Reference):
        return reference_name(node.table, node.name)
    return _text(node)[:NAME_LENGTH_MAX]


def reference_name(table: str | None, name: str) -> str:
    """Return the name of a column that stands alone."""
    return name if table is None else f"{table}.{name}"


def _text(node: Node) -> str:
    return _FORMATS[type(node)](node)


def _list(nodes: tuple[Node, ...]) -> str:
    return ", ".join([_text(it) for it in nodes])


def _operand(node: Node) -> str:
    return _list(node.items) if isinstance(node, Tuple) else _text(node)


def _identifier(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"[{name}]"


def _reference(node: Reference) -> str:
    return reference_name(node.table, _identifier(node.name))


def _logical(node: Logical) -> str:
    """Write the operands as if they had been written two by two, from the left."""
    first, *rest = [_text(it) for it in node.operands]
    opening = "(" * len(rest)
    return opening + first + "".join([f"){node.operator}({it})" for it in rest])


def _binary(node: Binary) -> str:
    return f"({_operand(node.left)}){node.operator}({_operand(node.right)})"


def _like(node: Like) -> str:
    text = f"{_text(node.text)} {node.operator} {_text(node.pattern)}"
    return text if node.escape is None else f"{text} ESCAPE {_text(node.escape)}"


def _transform(node: Transform) -> str:
    operands = _list(node.operands)
    operands = f"({operands})" if len(node.operands) > 1 else operands
    text = f"TRANSFORM({operands}, ({_rows(node.rows)}), ({_rows(node.values)})"
    return f"{text})" if node.default is None else f"{text}, {_text(node.default)})"


def _case(node: Case) -> str:
    words = ["CASE", *([] if node.operand is None else [_text(node.operand)])]
    for condition, result in node.branches:
        words += ["WHEN", _text(condition), "THEN", _text(result)]
    words += [] if node.default is None else ["ELSE", _text(node.default)]
    return " ".join([*words, "END"])


def _between(node: Between) -> str:
    ranges = ", ".join([f"{_row(lower)} AND {_row(upper)}" for lower, upper in node.ranges])
    return f"({_list(node.operands)}) BETWEEN ({ranges})"


def _rows(rows: tuple[Row, ...]) -> str:
    return ", ".join([_row(it) for it in rows])


def _row(row: Row) -> str:
    text = ", ".join([_constant(it.constant) for it in row])
    return f"({text})" if len(row) > 1 else text


def _constant(constant: Constant) -> str:
    value = constant.value
    match constant.kind:
        case Kind.NULL:
            return "null"
        case Kind.BOOLEAN:
            return "true" if value else "false"
        case Kind.UINT64:
            return f"{value}u"
        case Kind.DOUBLE:
            return f"{value:.17g}" if float(f"{value:g}") != value else f"{value:g}"
        case Kind.STRING:
            return f'"{_escaped(value)}"'
    return str(value)


def _escaped(value: bytes) -> str:
    text = value.decode("latin-1").translate(_ESCAPES)
    return "".join([it if " " <= it <= "~" else f"\\x{ord(it):02X}" for it in text])


_FORMATS: Final[dict[type[Node], Callable[[Any], str]]] = {
    Alias: lambda node: _identifier(node.name),
    Between: _between,
    Binary: _binary,
    Call: lambda node: f"{node.name}({_list(node.arguments)})",
    Case: _case,
    In: lambda node: f"({_list(node.operands)}) IN ({_rows(node.rows)})",
    Like: _like,
    Literal: lambda node: _constant(node.constant),
    Logical: _logical,
    Reference: _reference,
    Transform: _transform,
    Tuple: lambda node: f"({_list(node.items)})",
    Unary: lambda node: f"{node.operator}({_operand(node.operand)})",
}
