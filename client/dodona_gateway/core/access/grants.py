"""Grants: which role somebody has on which nodes, and what that allows. Pure.

Owns: the three roles (admin includes write, write includes read), the text form of a grant, the
matching of patterns, and the rules of `//sys`. An answer is no unless one grant says yes: grants
only ever add to each other.

`//sys` is the system's: writing there takes admin. Whoever can read `//sys/tokens` could try to
find tokens, and whoever can write it could make one, so that this table, and everything that
contains it, takes admin on everything.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import msgspec

from dodona_gateway.core.access.paths import ANY_NAME, ANY_NAMES, Names, node_names, pattern_names
from dodona_wire.errors import InvalidRequest, LimitExceeded

Role = Literal["read", "write", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""From the least to the most."""

GRANTS_MAX: Final = 100
"""Of one token."""
TOKENS: Final = "//sys/tokens"
_SYSTEM: Final = ("sys",)
_TOKENS: Final = node_names(TOKENS)


class Grant(msgspec.Struct, frozen=True):
    """A role on all nodes that a pattern matches. Make it with `Grant.parse` or `Grant.of`."""

    role: Role
    names: Names
    """Of the pattern; `**` is the last, if any."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """`role:pattern`, such as `write://home/bank/**`. Raises InvalidRequest, LimitExceeded."""
        role, colon, pattern = text.partition(":")
        if not colon:
            raise InvalidRequest(f"a grant is a role, a colon and a path: not {text[:80]!r}")
        return cls.of(role, pattern)

    @classmethod
    def of(cls, role: str, pattern: str) -> Self:
        """Raises InvalidRequest, LimitExceeded."""
        return cls(check_role(role), pattern_names(pattern))

    @property
    def pattern(self) -> str:
        """The nodes, as text: `/` is written `//**`."""
        return "//" + "/".join(self.names)

    def __str__(self) -> str:
        return f"{self.role}:{self.pattern}"

    def meets(self, need: "Need") -> bool:
        """Whether this alone is enough."""
        is_enough = ROLES.index(self.role) >= ROLES.index(need.role)
        return is_enough and _matches(self.names, need.names, need.is_subtree)


def check_role(role: str) -> Role:
    """Raises InvalidRequest."""
    for known in ROLES:
        if role == known:
            return known
    raise InvalidRequest(f"a role is one of {', '.join(ROLES)}, not {role[:80]!r}")


def parse_grants(texts: Any) -> tuple[Grant, ...]:
    """What a user writes, or a table holds: a list of texts, without repetitions. Raises
    InvalidRequest, LimitExceeded."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InvalidRequest(f"grants are a list of texts, not {type(texts).__name__}")
    parsed: dict[Grant, None] = {}
    for place, text in enumerate(texts):
        if place == GRANTS_MAX:
            raise LimitExceeded(f"a token has at most {GRANTS_MAX} grants")
        if not isinstance(text, str):
            raise InvalidRequest(f"a grant is a text, not {type(text).__name__}")
        parsed[Grant.parse(text)] = None
    return tuple(parsed)


class Need(NamedTuple):
    """What an operation takes: a role at a node, and, for a subtree, at everything below it."""

    role: Role
    names: Names
    is_subtree: bool

    @property
    def pattern(self) -> str:
        """The nodes, as a grant would name them."""
        return "//" + "/".join((*self.names, ANY_NAMES) if self.is_subtree else self.names)

    def is_met_by(self, grants: Iterable[Grant]) -> bool:
        """Whether one of the grants is enough."""
        return any(grant.meets(self) for grant in grants)


def need_of(role: Role, path: str, *, subtree: bool = False) -> Need:
    """What it takes to act in a role at the node of a path. `subtree`: and at everything below it,
    now and later, as removing, moving and copying a directory do. Raises InvalidRequest,
    LimitExceeded for a path that names no node."""
    names = node_names(path)
    is_in_tokens = names[: len(_TOKENS)] == _TOKENS
    if is_in_tokens or (subtree and names == _TOKENS[: len(names)]):
        return need_everywhere("admin")
    is_systems = names[:1] == _SYSTEM and role == "write"
    return Need("admin" if is_systems else role, names, subtree)


def need_everywhere(role: Role) -> Need:
    """What it takes for what has no path and concerns all nodes."""
    return Need(role, (), True)


def allows_somewhere(grants: Iterable[Grant], role: Role) -> bool:
    """Whether there is a grant of this role at all: for what tells nothing of any node."""
    return any(ROLES.index(grant.role) >= ROLES.index(role) for grant in grants)


def _matches(pattern: Names, names: Names, subtree: bool) -> bool:
    if pattern[-1] == ANY_NAMES:
        heads = pattern[:-1]
        return len(heads) <= len(names) and _all_match(heads, names[: len(heads)])
    return not subtree and len(pattern) == len(names) and _all_match(pattern, names)


def _all_match(pattern: Names, names: Names) -> bool:
    return all(wanted in (ANY_NAME, name) for wanted, name in zip(pattern, names, strict=True))
