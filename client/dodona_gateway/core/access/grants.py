"""Grants: a role on a pattern of nodes, and what the role allows there. Pure.

Owns: the three roles (admin includes write, write includes read), the text form of a grant, the
matching of patterns, and the rules of `//sys`. An operation is allowed only if one grant allows it:
a grant can only add rights.

The system owns `//sys`, so a write there needs admin. A caller who reads `//sys/tokens` could try
to find tokens, and a caller who writes it could make one. So each access to this table needs admin
on everything. The same holds for an operation on a whole directory that contains it.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import msgspec

from dodona_gateway.core.access.paths import ANY_NAME, ANY_NAMES, Names, node_names, pattern_names
from dodona_wire.errors import InvalidRequest, LimitExceeded

Role = Literal["read", "write", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""The roles, from the one that allows least to the one that allows most."""

GRANTS_MAX: Final = 100
"""The largest number of grants of one token."""
TOKENS: Final = "//sys/tokens"
_SYSTEM: Final = ("sys",)
_TOKENS: Final = node_names(TOKENS)


class Grant(msgspec.Struct, frozen=True):
    """A role on all nodes that a pattern matches. Make it with `Grant.parse` or `Grant.of`."""

    role: Role
    names: Names
    """The names of the pattern. If `**` is among them, it is the last."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `role:pattern`, such as `write://home/bank/**`. Raises InvalidRequest,
        LimitExceeded."""
        role, colon, pattern = text.partition(":")
        if not colon:
            message = (
                f"The grant {text[:80]!r} has no colon. Write role:path, as in read://home/**."
            )
            raise InvalidRequest(message)
        return cls.of(role, pattern)

    @classmethod
    def of(cls, role: str, pattern: str) -> Self:
        """Make a grant from a role and a pattern. Raises InvalidRequest, LimitExceeded."""
        return cls(check_role(role), pattern_names(pattern))

    @property
    def pattern(self) -> str:
        """Return the pattern as text. The pattern `/` becomes `//**`."""
        return "//" + "/".join(self.names)

    def __str__(self) -> str:
        return f"{self.role}:{self.pattern}"

    def meets(self, need: "Need") -> bool:
        """Return whether this grant alone meets the need."""
        is_enough = ROLES.index(self.role) >= ROLES.index(need.role)
        return is_enough and _matches(self.names, need.names, need.is_subtree)


def check_role(role: str) -> Role:
    """Return the role of this name. Raises InvalidRequest if there is none."""
    for known in ROLES:
        if role == known:
            return known
    raise InvalidRequest(f"A role must be one of {', '.join(ROLES)}, not {role[:80]!r}.")


def parse_grants(texts: Any) -> tuple[Grant, ...]:
    """Parse a list of texts from a user or from the table, and drop repetitions. Raises
    InvalidRequest, LimitExceeded."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InvalidRequest(f"Pass the grants as a list of str, not {type(texts).__name__}.")
    parsed: dict[Grant, None] = {}
    for place, text in enumerate(texts):
        if place == GRANTS_MAX:
            raise LimitExceeded(
                f"A token has at most {GRANTS_MAX} grants. Combine some with * or **."
            )
        if not isinstance(text, str):
            raise InvalidRequest(f"Pass a grant as a str, not {type(text).__name__}.")
        parsed[Grant.parse(text)] = None
    return tuple(parsed)


class Need(NamedTuple):
    """What an operation needs: a role at a node, and for a subtree at all nodes below it too."""

    role: Role
    names: Names
    is_subtree: bool

    @property
    def pattern(self) -> str:
        """Return the nodes as a grant would name them."""
        return "//" + "/".join((*self.names, ANY_NAMES) if self.is_subtree else self.names)

    def is_met_by(self, grants: Iterable[Grant]) -> bool:
        """Return whether one of the grants is enough."""
        return any(grant.meets(self) for grant in grants)


def need_of(role: Role, path: str, *, subtree: bool = False) -> Need:
    """Return the need of an operation in a role at the node of a path. With `subtree` the need
    includes all nodes below it, now and later, as for removing, moving and copying a directory.
    Raises InvalidRequest or LimitExceeded for a path that names no node."""
    names = node_names(path)
    is_in_tokens = names[: len(_TOKENS)] == _TOKENS
    if is_in_tokens or (subtree and names == _TOKENS[: len(names)]):
        return need_everywhere("admin")
    is_systems = names[:1] == _SYSTEM and role == "write"
    return Need("admin" if is_systems else role, names, subtree)


def need_everywhere(role: Role) -> Need:
    """Return the need of an operation that has no path and concerns all nodes."""
    return Need(role, (), True)


def allows_somewhere(grants: Iterable[Grant], role: Role) -> bool:
    """Return whether any grant gives this role: for an operation that shows nothing of any node."""
    return any(ROLES.index(grant.role) >= ROLES.index(role) for grant in grants)


def _matches(pattern: Names, names: Names, subtree: bool) -> bool:
    if pattern[-1] == ANY_NAMES:
        heads = pattern[:-1]
        return len(heads) <= len(names) and _all_match(heads, names[: len(heads)])
    return not subtree and len(pattern) == len(names) and _all_match(pattern, names)


def _all_match(pattern: Names, names: Names) -> bool:
    return all(wanted in (ANY_NAME, name) for wanted, name in zip(pattern, names, strict=True))
