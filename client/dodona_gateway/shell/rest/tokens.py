"""Create, list and revoke tokens over REST. All operations need admin on everything.

Owns: these operations, each a few lines over the store, which dodona's command line uses too. A
token's text is in the answer to its creation and in no other answer.
"""

from typing import Final

from dodona_gateway.core import answers, requests
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.tokens import Token
from dodona_gateway.core.answers import MadeToken, TokenView
from dodona_gateway.shell.routes import Call, route
from dodona_server.process import read_clock


async def create_token(call: Call, asked: requests.CreateToken) -> MadeToken:
    """Create a token. Its text is shown only in this answer."""
    call.principal.check_everywhere("admin")
    grants = parse_grants(asked.grants)
    now_us = read_clock().unix_us
    expires_us = None if asked.expires_s is None else now_us + asked.expires_s * 1_000_000
    made = await call.service.tokens.create(asked.name, grants, expires_us)
    return MadeToken(made.text, _view(made.token))


async def list_tokens(call: Call, asked: requests.Nothing) -> answers.TokenList:
    """Return all tokens, without their secrets."""
    call.principal.check_everywhere("admin")
    return answers.TokenList([_view(it) for it in await call.service.tokens.list()])


async def revoke_token(call: Call, asked: requests.RevokeToken) -> TokenView:
    """Revoke a token for ever. This gateway refuses it immediately, all others within two
    seconds."""
    call.principal.check_everywhere("admin")
    token = await call.service.tokens.revoke(asked.id)
    call.service.learn_token(token)
    return _view(token)


def _view(token: Token) -> TokenView:
    return TokenView(
        token.id,
        token.name,
        [str(it) for it in token.grants],
        token.state_at(read_clock().unix_us),
        token.created_us,
        token.expires_us,
        token.revoked_us,
    )


ROUTES: Final = (
    route("POST", "/v1/tokens", create_token, "admin", status=201),
    route("GET", "/v1/tokens", list_tokens, "admin"),
    route("DELETE", "/v1/token", revoke_token, "admin"),
)
