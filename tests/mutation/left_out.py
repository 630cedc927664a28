"""Which mutants are left out, since a test that kills them says nothing about the product.

Owns: the operators that add little, and the places of a source where nobody is to notice:
- **Numbers of choice**: how large a bound, a cache or a default is. A test could only repeat it.
  What differs by more than size stays: 0, 1 and what is negative, except the 1 of `1 << 20`.
- **Assertions**: what is asserted is always true, so a weaker assertion is never seen. So is the
  `strict=True` of `zip`.
- **Planted bugs**: the lines that ask for one, and what is done only then. The tests of planted
  bugs judge them.
- **Declarations**: whether a struct is frozen, or collected; the types of arguments, results and
  variables, which `mypy` judges.

Must not import: any core.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

EXCLUDED: Final = re.compile(
    r"core/(RemoveDecorator|ReplaceUnaryOperator_(?!Delete_Not)|VariableInserter|VariableReplacer"
    r"|ReplaceBinaryOperator_(?!Add_Sub|Sub_Add|Mul_Add|FloorDiv_Mul|BitOr_BitAnd|BitAnd_BitOr"
    r"|RShift_LShift|LShift_RShift)"
    r"|ReplaceComparisonOperator_(?!Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Is_IsNot"
    r"|IsNot_Is|In_NotIn|NotIn_In))"
)
"""Operators that add little: of each comparison its nearest neighbour or its opposite is enough, of
each sum the difference."""
NUMBER: Final = "core/NumberReplacer"
SMALLEST_CHOICE: Final = 2
PLANTED: Final = re.compile("fault_at|injects_faults", re.IGNORECASE)

Place = tuple[int, int]
"""A line, from 1, and a column, from 0."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Of one source."""

    silent: tuple[tuple[Place, Place], ...]
    """Where no mutant is to be noticed: from the first to the second, inclusive."""
    numbers: frozenset[Place]
    """Where numbers of choice begin."""

    def has(self, operator: str, place: Place) -> bool:
        if EXCLUDED.match(operator) or (operator == NUMBER and place in self.numbers):
            return True
        return any(first <= place <= last for first, last in self.silent)


def left_out_of(source: str) -> LeftOut:
    tree = ast.parse(source)
    silent = [_place_of(it) for it in ast.walk(tree) if _is_silent(it)]
    silent += [_place_of(it) for node in ast.walk(tree) for it in _inner(node)]
    numbers = {
        (it.lineno, it.col_offset)
        for node in _outside_functions(tree)
        for it in _sizes_in(node)
        if isinstance(it, ast.Constant) and _is_choice(it.value)
    }
    numbers |= {
        (it.left.lineno, it.left.col_offset)
        for it in _outside_functions(tree)
        if isinstance(it, ast.BinOp) and isinstance(it.op, ast.LShift)
    }
    return LeftOut(tuple(silent), frozenset(numbers))


def _is_silent(node: ast.AST) -> bool:
    match node:
        case ast.Assert():
            return True
        case ast.Assign(targets=[ast.AST() as planted]) | ast.Call(func=ast.AST() as planted):
            return _is_planted(planted)
        case ast.BoolOp(values=parts):
            return all(map(_is_planted, parts))
        case ast.Attribute() | ast.Name():
            return _is_planted(node)
        case _:
            return False


def _is_planted(node: ast.AST) -> bool:
    return bool(PLANTED.search(ast.unparse(node)))


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of it that are to be left out, where it is not itself: how a struct is declared, a
    type, what `zip` asserts, and what is done only where a planted bug is asked for."""
    yield from _types_in(node)
    if isinstance(node, ast.ClassDef):
        yield from (it.value for it in node.keywords)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
        yield from (it.value for it in node.keywords)
    if isinstance(node, ast.If) and _is_silent(node.test):
        yield from node.body


def _types_in(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.arg(annotation=ast.AST() as it) | ast.AnnAssign(annotation=it):
            yield it
        case ast.FunctionDef(returns=ast.AST() as it):
            yield it
        case ast.AsyncFunctionDef(returns=ast.AST() as it):
            yield it


def _place_of(node: ast.AST) -> tuple[Place, Place]:
    assert isinstance(node, ast.stmt | ast.expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Lambda):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _outside_functions(child)


def _sizes_in(node: ast.AST) -> Iterator[ast.AST]:
    """The node itself, or what decorates a function, such as the size of a cache."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for it in node.decorator_list:
            yield from ast.walk(it)
    else:
        yield node


def _is_choice(value: object) -> bool:
    return isinstance(value, int | float) and value >= SMALLEST_CHOICE
