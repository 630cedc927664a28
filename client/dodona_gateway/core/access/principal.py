"""Principals: who a request comes from, once that is known, and the checks of what they may. Pure.

Owns: the checks, which raise Forbidden with what is lacking. Asks nobody: a principal is as its
token was when the request came.
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


class Principal(msgspec.Struct, frozen=True):
    """Somebody with grants. `token_id` is None if no tokens are asked for."""

    name: str
    token_id: TokenId | None
    grants: tuple[Grant, ...]

    @property
    def owner(self) -> str:
        """Whose transactions those are that it begins."""
        return self.token_id or self.name

    def allows(self, role: Role, path: str, *, subtree: bool = False) -> bool:
        """Whether the role is granted at this node, and, for a subtree, at all below it. Raises
        InvalidRequest, LimitExceeded for what is no path."""
        return need_of(role, path, subtree=subtree).is_met_by(self.grants)

    def check(self, role: Role, path: str, *, subtree: bool = False) -> None:
        """Raises Forbidden unless that is allowed; InvalidRequest, LimitExceeded for no path."""
        self._check(need_of(role, path, subtree=subtree))

    def check_everywhere(self, role: Role) -> None:
        """For what has no path and concerns all. Raises Forbidden."""
        self._check(need_everywhere(role))

    def check_somewhere(self, role: Role) -> None:
        """For what has no path and tells of none. Raises Forbidden unless there is such a grant."""
        if not allows_somewhere(self.grants, role):
            raise Forbidden(f"the token of {self.name!r} grants {role} nowhere", role=role)

    def _check(self, need: Need) -> None:
        if not need.is_met_by(self.grants):
            text = f"the token of {self.name!r} does not grant {need.role} on {need.pattern}"
            raise Forbidden(text, role=need.role, path=need.pattern)


ANYBODY: Final = Principal("anybody", None, (Grant.of("admin", "/"),))
"""Whoever calls a gateway that asks for no tokens: everything is allowed."""


def principal_of(token: Token) -> Principal:
    return Principal(token.name, token.id, token.grants)
