"""The document of a log: its epoch, its owner and the set of its replicas.

Owns: the fields, their limits, their JSON, and the changes that the protocol allows. A log has one
document. Operators read it with `etcdctl`, so it is JSON.

Invariant: the epoch is 0 exactly if the log never had an owner, and such a document is released.
The id of an owner has a part that a process draws at its start. So no two processes, and no two
starts of one process, have the same id. Proofs of `coordination` rest on this. R2 and so on are
rules of the replication protocol.
Must not import: any shell.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from dodona_replication.core.errors import DocumentUnreadable, IllegalChange
from dodona_wire.errors import InvalidRequest
from dodona_wire.preload import preload_decoder
from dodona_wire.shown import shown

DOCUMENT_BYTES_MAX: Final = 4_096
"""Bytes of a document as JSON. The usual size is 300."""
EPOCH_MAX: Final = (1 << 53) - 1
"""The largest epoch: tools that read JSON numbers as doubles show it exactly."""
MEMBERS_MAX: Final = 16
"""Replicas in a set."""
NAME_LENGTH_MAX: Final = 64
"""Characters of the name of a log, a cluster, an owner or a replica."""
START_BYTES: Final = 8
"""Random bytes that a process draws at its start."""

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_LENGTH_MAX - 1}}}", re.ASCII)
_OWNER: Final = re.compile(rf"{_NAME.pattern}/[0-9a-f]{{{2 * START_BYTES}}}", re.ASCII)
_PLACE: Final = re.compile(r"(?:at `\$\.?|field `)([^`\[]+)")
"""Where msgspec names a field in the text of an error."""
_REMEDY: Final = "stop the process, and compare the document with the log; a newer release may help"


def owner_id(name: str, start: bytes) -> str:
    """Return the id of a process that may own logs. `name` is for people, such as `node-3`. `start`
    is `START_BYTES` random bytes, which the process draws once. Raises InvalidRequest."""
    if len(start) != START_BYTES:
        raise InvalidRequest(f"an owner id needs {START_BYTES} random bytes: draw them at start")
    return f"{check_name(name, 'owner')}/{start.hex()}"


def check_name(name: str, what: str) -> str:
    """Return the name of a log, a cluster or a process if it can be part of a key and of a file
    name. Raises InvalidRequest."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            f"{shown(name)} can't be the name of this {what}: use 1 to {NAME_LENGTH_MAX} letters, "
            "digits, and - _ . after the first"
        )
    return name


@preload_decoder
class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a log's ownership. A change makes another document."""

    epoch: int
    """Rises by one with each take-over. 0: the log never had an owner."""
    owner: str | None
    """The id of the process that owns the log in this epoch (see `owner_id`), if any."""
    members: tuple[str, ...]
    """The ids of the replicas in the set, in the order in which they came. An id belongs to a disk,
    and is no address (R8)."""
    copies_min: int
    """The smallest set that the log may have (R14). It is the same in all documents of a log."""
    released: bool
    """Whether the owner gave up this epoch, and serves nothing in it any more (R31)."""

    @classmethod
    def initial(cls, members: Sequence[str], copies_min: int) -> "Document":
        """Return the first document of a new log. Raises IllegalChange."""
        return _legal(cls(0, None, tuple(members), copies_min, True))

    def take_over(self, owner: str) -> "Document":
        """Return the document of the next epoch, with the same set (R2). Raises IllegalChange."""
        return _legal(replace(self, epoch=self.epoch + 1, owner=owner, released=False))

    def with_members(self, members: Sequence[str]) -> "Document":
        """Return the document with another set, in the same epoch. Raises IllegalChange if the set
        is too small (R14), if it is not another set, or if the epoch has ended (R31)."""
        self._check_epoch_is_open()
        if sorted(members) == sorted(self.members):
            raise IllegalChange(
                "the set has these members already: send no change", field="members"
            )
        return _legal(replace(self, members=tuple(members)))

    def release(self) -> "Document":
        """Return the document with which its owner gives up the epoch (R31). Raises IllegalChange
        if the epoch has ended."""
        self._check_epoch_is_open()
        return replace(self, released=True)

    def _check_epoch_is_open(self) -> None:
        if self.released:
            raise IllegalChange(
                f"epoch {self.epoch} is released, so nothing changes in it: take over first",
                field="released",
            )


class Revisioned(msgspec.Struct, frozen=True):
    """A document, and the revision at which the coordinator stored it."""

    document: Document
    revision: int
    """Rises with each change of this document, by one or more. The first one is above 0."""


def encode(log: str, document: Document) -> bytes:
    """Return a document as JSON. Raises DocumentUnreadable if no process could read it."""
    _check(log, document)
    data = msgspec.json.encode(document)
    _check_size(log, data)
    return data


def decode(log: str, data: bytes) -> Document:
    """Return the document of a log from its JSON. Takes nothing that `encode` would not write, but
    for spaces and the order of fields. Raises DocumentUnreadable."""
    _check_size(log, data)
    try:
        document = msgspec.json.decode(data, type=Document)
    except msgspec.DecodeError as error:
        found = _PLACE.search(str(error))
        raise _unreadable(log, found[1] if found else "", str(error)) from error
    except UnicodeDecodeError as error:
        raise _unreadable(log, "", "it is not UTF-8") from error
    names = [name for name, _ in json.loads(data, object_pairs_hook=list)]
    if repeated := sorted({it for it in names if names.count(it) > 1}):
        raise _unreadable(log, repeated[0], "the field comes twice")
    _check(log, document)
    return document


def _check_size(log: str, data: bytes) -> None:
    if len(data) > DOCUMENT_BYTES_MAX:
        reason = f"it has {len(data)} bytes, and at most {DOCUMENT_BYTES_MAX} are allowed"
        raise _unreadable(log, "", reason)


def _check(log: str, document: Document) -> None:
    if found := _fault_of(document):
        raise _unreadable(log, *found)


def _unreadable(log: str, field: str, reason: str) -> DocumentUnreadable:
    place = f"field {shown(field)} of the" if field else "the"
    return DocumentUnreadable(
        f"{place} document of log {shown(log)} is not valid: {reason}; {_REMEDY}",
        log=log,
        field=field,
    )


def _legal(document: Document) -> Document:
    if found := _fault_of(document):
        field, reason = found
        raise IllegalChange(f"the document would not be valid: {field}: {reason}", field=field)
    return document


def _fault_of(document: Document) -> tuple[str, str] | None:
    """Return the first field with a bad value, and the reason."""
    faults = (
        ("epoch", _fault_of_epoch(document)),
        ("owner", _fault_of_owner(document)),
        ("members", _fault_of_members(document)),
        ("copies_min", _fault_of_copies(document)),
        ("released", _fault_of_released(document)),
    )
    return next(((field, reason) for field, reason in faults if reason is not None), None)


def _fault_of_epoch(document: Document) -> str | None:
    if 0 <= document.epoch <= EPOCH_MAX:
        return None
    return f"an epoch is between 0 and {EPOCH_MAX}, not {shown(document.epoch)}"


def _fault_of_owner(document: Document) -> str | None:
    if document.owner is None:
        return None if document.epoch == 0 else "a log has an owner after epoch 0"
    if document.epoch == 0:
        return "a log has no owner in epoch 0"
    if _OWNER.fullmatch(document.owner) is None:
        return f"{shown(document.owner)} is not a name, a slash and {2 * START_BYTES} hex digits"
    return None


def _fault_of_members(document: Document) -> str | None:
    members = document.members
    bad = [it for it in members if _NAME.fullmatch(it) is None]
    if bad:
        return f"{shown(bad[0])} is not 1 to {NAME_LENGTH_MAX} letters, digits, - _ ."
    if len({*members}) < len(members):
        return "a replica comes twice"
    if not document.copies_min <= len(members) <= MEMBERS_MAX:
        return (
            f"a set has between {shown(document.copies_min)} (copies_min) and {MEMBERS_MAX} "
            f"replicas, not {len(members)}"
        )
    return None


def _fault_of_copies(document: Document) -> str | None:
    if 1 <= document.copies_min <= MEMBERS_MAX:
        return None
    return f"copies_min is between 1 and {MEMBERS_MAX}, not {shown(document.copies_min)}"


def _fault_of_released(document: Document) -> str | None:
    if document.epoch == 0 and not document.released:
        return "epoch 0 has no owner, so it is released"
    return None
