"""The reference of the Python API, made of signatures and docstrings.

Owns: what is in it, and in which order.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import dodona
import dodona.spark
import dodona_local.backup
from documents.blocks import DOCS
from documents.members import Member, fields_of, methods_of, signature_of
from dodona.changes import Changes
from dodona.local_copy import LocalCopy

KNOWN: Final = frozenset(it for it in dodona.__all__ if it.isupper()) | {"NULL_TIMESTAMP"}
FUNCTIONS: Final = (
    "connect",
    "open",
    "datetime_from_timestamp",
    "timestamp_from_datetime",
    "json_of_any",
)
CLASSES: Final[tuple[type, ...]] = (
    dodona.Client,
    dodona.Transaction,
    dodona.MasterTransaction,
    dodona.Snapshot,
    Changes,
    LocalCopy,
    dodona.Loads,
    dodona.Load,
    dodona.Leases,
)
VALUES: Final[tuple[type, ...]] = (
    dodona.Rows,
    dodona.VersionedRow,
    dodona.VersionedValue,
    dodona.Outcome,
    dodona.TransactionState,
    dodona.TableInfo,
    dodona.TabletInfo,
    dodona.Column,
    dodona.TableSchema,
    dodona.TableSettings,
    dodona.Lease,
    dodona.LoadTicket,
    dodona.StagedBatch,
    dodona.Published,
    dodona.LoadRecord,
    dodona.LoadRecovery,
    dodona.DodonaError,
)
ONLY: Final[dict[type, tuple[str, ...]]] = {
    dodona.Lease: ("table", "name", "owner", "epoch"),
    dodona.TableSchema: ("columns", "parse"),
}
"""Of these the rest is for servers and clients."""
ELSEWHERE: Final[dict[str, tuple[Any, ...]]] = {
    "dodona.spark": (dodona.spark.bulk_write, dodona.spark.BulkWrite, dodona.spark.register),
    "dodona_local.backup": (dodona_local.backup.back_up, dodona_local.backup.restore),
}
QUOTED: Final = re.compile(r"\s*\(\"([A-Z][^\"]*)\"\)")


def api_text() -> str:
    """A section for each kind of thing, a heading for each thing."""
    sections = {
        "Functions": [_function(f"dodona.{it}", getattr(dodona, it)) for it in FUNCTIONS],
        **{it.__name__: list(_class(it)) for it in CLASSES},
        "Values": [part for kind in VALUES for part in _value(kind)],
        **{name: list(_module(name, things)) for name, things in ELSEWHERE.items()},
    }
    shown = ["\n\n".join([f"## {name}", *parts]) for name, parts in sections.items()]
    return "\n\n".join([_contents(shown), *shown])


def _contents(sections: list[str]) -> str:
    """A line for each section, with links."""
    lines = []
    for section in sections:
        title, *names = re.findall(r"^##+ (.*)$", section, re.MULTILINE)
        links = [f"[{it.strip('`').rpartition('.')[2]}](#{_anchor(it)})" for it in names]
        lines.append(f"- [**{title}**](#{_anchor(title)}): {', '.join(links)}")
    return "\n".join(lines)


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _function(name: str, function: Callable[..., Any]) -> str:
    member = Member(name, signature_of(function, KNOWN), inspect.getdoc(function) or "")
    return _member(name, member)


def _member(name: str, member: Member) -> str:
    parts = [f"### `{name}`", f"```pyi\n{member.signature}\n```", _prose(member.doc)]
    return "\n\n".join(it for it in parts if it)


def _class(kind: type) -> Iterator[str]:
    yield _prose(inspect.getdoc(kind) or "")
    for member in methods_of(kind, KNOWN):
        yield _member(f"{kind.__name__}.{member.name}", member)


def _value(kind: type) -> Iterator[str]:
    """Short: a heading, its fields and methods in one list."""
    yield f"### `{kind.__name__}`"
    yield _prose(inspect.getdoc(kind) or "")
    members = [*fields_of(kind), *methods_of(kind, KNOWN)]
    if kind in ONLY:
        members = [it for it in members if it.name in ONLY[kind]]
    items = [
        f"- `{' '.join(it.signature.split())}` {_prose(it.doc, is_item=True)}" for it in members
    ]
    if items:
        yield "\n".join(it.rstrip() for it in items)


def _module(name: str, things: tuple[Any, ...]) -> Iterator[str]:
    for thing in things:
        if isinstance(thing, type):
            yield from _value(thing)
        else:
            yield _function(f"{name}.{thing.__name__}", thing)


def _prose(doc: str, *, is_item: bool = False) -> str:
    """Paragraphs, each on one line, and lists. What it quotes are headings of the transaction
    model, which become links, or of YTsaurus's documents, which are nothing to the reader here."""
    doc = QUOTED.sub(_link, inspect.cleandoc(doc))
    paragraphs = [_joined(it) for it in re.split(r"\n\n+", doc)]
    return " ".join(paragraphs) if is_item else "\n\n".join(paragraphs)


def _joined(paragraph: str) -> str:
    lines: list[str] = []
    for line in paragraph.splitlines():
        if lines and not line.startswith("- "):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _link(found: "re.Match[str]") -> str:
    model = (DOCS / "explanation" / "transaction-model.md").read_text("utf-8")
    if re.search(rf"^#+ {re.escape(found[1])}$", model, re.MULTILINE) is None:
        return ""
    return f" ([{found[1]}](../explanation/transaction-model.md#{_anchor(found[1])}))"
