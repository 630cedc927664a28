"""Whatever is read as a type of our own was described to msgspec before a second thread can read.

Owns: the search of the sources for such reads, and the look at a process in which nothing has been
read yet. See `dodona_wire.preload` for what happens otherwise.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("client", "oracle", "tablets", "loadtest")

BY_VARIABLE: Final = {
    ("client/dodona/_core/loads/ticket.py", "cls"),
    ("client/dodona_wire/messages/rest.py", "struct"),
    ("client/dodona_wire/messages/rest.py", "wanted"),
    ("client/dodona_gateway/core/content.py", "wanted"),
    ("client/dodona_gateway/shell/console/asking.py", "kind"),
    ("client/dodona_local/status.py", "kind"),
    ("oracle/dodona_oracle/core/records.py", "kind"),
}
"""Reads whose type a caller says: KINDS below names all of them."""

PLAIN: Final = {"bool", "int", "timedelta", "Values"}
"""Hold no fields of their own: a truth value, a number, a duration, a list of anything."""

KINDS: Final = """
import msgspec
from dodona._core.loads.ticket import LoadTicket
from dodona_wire.cores.recoveries import RecoveryPage
from dodona_wire.messages.rest import OPERATIONS, Problem
from dodona_wire.messages.json_messages import json_struct_of
from dodona.schema import Column
from dodona.types import TableSettings
from dodona_gateway.core.access.tokens import Token
from dodona_gateway.core.console import server_pages
from dodona_gateway.shell.console import asking
from dodona_gateway.shell.gateway import ROUTES
from dodona_local import status
from dodona_local.backup import manifest
from dodona_oracle.core import records

kinds = [
    *(json_struct_of(it) for each in OPERATIONS for it in (each.request, each.reply)),
    *(route.request for route in ROUTES),
    *(getattr(server_pages, name) for name in dir(server_pages) if name.endswith("Page")),
    *records._kinds.values(),
    asking._Status, status._CountsPage, status._DoubtPage,
    Column, LoadTicket, Problem, RecoveryPage, TableSettings, Token,
    manifest.Manifest, manifest._Head,
]
"""
"""All types that a thread may be the first to read as, in a process that has only imported them."""

LOOK: Final = """
import sys
from msgspec import _utils

LOOKING = _utils.get_class_annotations.__code__
found = []


def looked_up_for(kind):
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(event) if frame.f_code is LOOKING else None)
    try:
        msgspec.json.decode(b"[[{", type=kind)
    except msgspec.DecodeError:
        pass
    finally:
        sys.setprofile(None)
    return bool(calls)


class Inner(msgspec.Struct):
    a: int


class Outer(msgspec.Struct):
    inner: Inner


assert looked_up_for(Outer), "it does not see what it is to see"
assert not looked_up_for(Outer)
print(len(kinds), *(it.__qualname__ for it in kinds if looked_up_for(it)))
"""


@pytest.mark.slow("compiles every schema of every module")
def test_each_type_that_is_read_is_preloaded() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in kinds_read(path.read_text("utf-8"))
    }
    decorated = {
        name
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in preloaded_classes(path.read_text("utf-8"))
    }
    assert {it for it in found if it[1] not in decorated | PLAIN} == BY_VARIABLE


@pytest.mark.slow("compiles every schema of every module")
def test_nothing_is_left_to_be_looked_up() -> None:
    command = [sys.executable, "-W", "error", "-c", KINDS + LOOK]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, *looked_up = done.stdout.split()
    assert int(count) > 60
    assert looked_up == []


READS = [
    ("msgspec.json.decode(content, type=Page)", ["Page"]),
    ("msgspec.msgpack.decode(b64decode(text), type=some.Page)", ["some.Page"]),
    ("msgspec.convert(fields, Column, strict=False)", ["Column"]),
    ("msgspec.convert(fields, type=Column)", ["Column"]),
    ("msgspec.json.decode(content)", []),
    ("Decoder(Page).decode(content)", []),
]


@pytest.mark.parametrize(("source", "kinds"), READS)
def test_a_read_is_found(source: str, kinds: list[str]) -> None:
    assert list(kinds_read(source)) == kinds


def test_a_preloaded_class_is_found() -> None:
    source = (
        "@preload_decoder\nclass A(Struct): ...\nclass B(Struct): ...\n@dataclass\nclass C: ..."
    )
    assert list(preloaded_classes(source)) == ["A"]


def kinds_read(source: str) -> Iterator[str]:
    """Of each read as a type: how the type is called there."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("decode", "convert"):
            continue
        by_name = [it.value for it in node.keywords if it.arg == "type"]
        by_place = node.args[1:2] if node.func.attr == "convert" else []
        yield from (ast.unparse(it) for it in (*by_name, *by_place))


def preloaded_classes(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and "preload_decoder" in map(
            ast.unparse, node.decorator_list
        ):
            yield node.name
