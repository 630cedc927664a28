"""Principals: the sender of a request, once known, and checks of what the sender may do. Pure.

Owns: the checks, which raise Forbidden and name the missing role. They ask no server: a principal
is as its token was when the request came.
"""

from typing import Final

import msgspec

from dodona_gateway.core.access.grants import (
    Grant,
    Need,
    Role,
    allows_somewhere,
    need_everywhere,
    need_of,
)
from dodona_gateway.core.access.tokens import Token, TokenId
from dodona_wire.errors import Forbidden

_ADVICE: Final = "Ask an administrator for a token with this grant."


class Principal(msgspec.Struct, frozen=True):
    """The sender of a request, with grants. `token_id` is None if the gateway asks for no
    tokens."""

    name: str
    token_id: TokenId | None
    grants: tuple[Grant, ...]

    @property
    def owner(self) -> str:
        """Return the name under which this principal owns the transactions that it begins."""
        return self.token_id or self.name

    def allows(self, role: Role, path: str, *, subtree: bool = False) -> bool:
        """Return whether the role is granted at this node, and for a subtree at all nodes below it.
        Raises InvalidRequest or LimitExceeded if `path` is no path."""
        return need_of(role, path, subtree=subtree).is_met_by(self.grants)

    def check(self, role: Role, path: str, *, subtree: bool = False) -> None:
        """Raise Forbidden unless `allows` is true; InvalidRequest or LimitExceeded for no path."""
        self._check(need_of(role, path, subtree=subtree))

    def check_everywhere(self, role: Role) -> None:
        """Raise Forbidden unless the role is granted on all nodes, for a call that concerns all
        nodes."""
        self._check(need_everywhere(role))

    def check_somewhere(self, role: Role) -> None:
        """Raise Forbidden unless the role is granted on any node, for a call that shows no node."""
        if not allows_somewhere(self.grants, role):
            text = f"The token of {self.name!r} does not grant {role} on any node."
            raise Forbidden(f"{text} {_ADVICE}", role=role)

    def _check(self, need: Need) -> None:
        if not need.is_met_by(self.grants):
            text = f"The token of {self.name!r} does not grant {need.role} on {need.pattern}."
            raise Forbidden(f"{text} {_ADVICE}", role=need.role, path=need.pattern)


ANYBODY: Final = Principal("anybody", None, (Grant.of("admin", "/"),))
"""The sender of every call to a gateway that asks for no tokens. Everything is allowed."""


def principal_of(token: Token) -> Principal:
    return Principal(token.name, token.id, token.grants)
