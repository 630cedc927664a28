"""Tokens: their text, what is kept of them, and whose a presented one is. Pure.

Owns: the text form `dodona_<id>_<secret>`, which exists in one spelling, and the comparison, which
takes as long for an id that nobody has as for one with another secret. Kept is a hash of the
secret, never the secret: 256 random bits need no slow hash. No repr, text or error of this module
has a secret or a hash in it. Randomness is handed in.
"""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from dodona_gateway.core.access.grants import Grant
from dodona_wire.errors import InvalidRequest, LimitExceeded, Unauthenticated
from dodona_wire.preload import preload_decoder

ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
NAME_LENGTH_MAX: Final = 256
HEADER_LENGTH_MAX: Final = 256

TokenId = str
"""16 hexadecimal digits. Not secret: lists, logs and audits show it."""
TokenState = Literal["valid", "expired", "revoked"]
RandomBytes = Callable[[int], bytes]
"""So many bytes that nobody can guess."""

_SHAPE: Final = "dodona_([0-9a-f]{16})_([A-Za-z0-9_-]{43})"
_text: Final = re.compile(_SHAPE, re.ASCII)
_authorization: Final = re.compile("(?:bearer|oauth) +([!-~]+)", re.ASCII | re.IGNORECASE)
_id: Final = re.compile("[0-9a-f]{16}", re.ASCII)
_alike: Final = re.compile(r"(dodona_[0-9a-f]{16}_)[A-Za-z0-9_-]+", re.ASCII | re.IGNORECASE)
_NOBODY: Final = bytes(hashlib.sha256().digest_size)
"""A hash that no secret is known to have: what an unknown id is compared with."""


class Secret:
    """Bytes that never show."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> Any:
        raise TypeError("a secret is neither copied nor stored")

    def digest(self) -> bytes:
        """What may be kept of it."""
        return hashlib.sha256(self._value).digest()


class PresentedToken(NamedTuple):
    """What somebody sent: not known yet to be anybody's."""

    id: TokenId
    secret: Secret


@preload_decoder
class Token(msgspec.Struct, frozen=True):
    """What is kept of a token. Times are in Unix microseconds."""

    id: TokenId
    name: str
    """Whose it is. Several may have one name."""
    secret_sha256: bytes
    grants: tuple[Grant, ...]
    created_us: int
    expires_us: int | None = None
    """None: never."""
    revoked_us: int | None = None
    """None: it was not."""

    def __repr__(self) -> str:
        grants = " ".join(map(str, self.grants))
        return f"<Token {self.id} of {self.name!r}: {grants or 'no grants'}>"

    def state_at(self, unix_us: int) -> TokenState:
        """Revoked for good, whatever the clock says; expired from the moment on that it names."""
        if self.revoked_us is not None:
            return "revoked"
        if self.expires_us is not None and unix_us >= self.expires_us:
            return "expired"
        return "valid"


class NewToken(NamedTuple):
    """A token and its text, which is nowhere else and is shown once."""

    token: Token
    text: str

    def __repr__(self) -> str:
        return f"<NewToken {self.token.id}>"


def new_token(
    name: str,
    grants: tuple[Grant, ...],
    *,
    created_us: int,
    expires_us: int | None = None,
    random_bytes: RandomBytes,
) -> NewToken:
    """Raises InvalidRequest, LimitExceeded."""
    check_new(name, grants, created_us, expires_us)
    id_bytes, secret = random_bytes(ID_BYTES), random_bytes(SECRET_BYTES)
    assert (len(id_bytes), len(secret)) == (ID_BYTES, SECRET_BYTES)
    id, digest = id_bytes.hex(), Secret(secret).digest()
    token = Token(id, name, digest, grants, created_us, expires_us)
    return NewToken(token, f"dodona_{id}_{_encode(secret)}")


def given_token(name: str, grants: tuple[Grant, ...], text: str, *, created_us: int) -> NewToken:
    """As `new_token`, of a text that was made elsewhere. Raises Unauthenticated if it is none of a
    token, InvalidRequest."""
    check_new(name, grants, created_us, None)
    presented = parse_token(text)
    token = Token(presented.id, name, presented.secret.digest(), grants, created_us)
    return NewToken(token, text)


def parse_token(text: str) -> PresentedToken:
    """Raises Unauthenticated, which does not repeat the text."""
    shape = _text.fullmatch(text)
    secret = b"" if shape is None else urlsafe_b64decode(shape[2] + "=")
    if shape is None or _encode(secret) != shape[2]:
        raise Unauthenticated("this is no token: one looks like dodona_<id>_<secret>")
    return PresentedToken(shape[1], Secret(secret))


def parse_authorization(header: str | None) -> PresentedToken:
    """The token in the value of a header `Authorization`: behind `Bearer`, or `OAuth`, which is
    YTsaurus's word. Raises Unauthenticated, which does not repeat the value."""
    if header is None:
        raise Unauthenticated("a token is needed: send the header Authorization: Bearer <token>")
    shape = _authorization.fullmatch(header) if len(header) <= HEADER_LENGTH_MAX else None
    if shape is None:
        raise Unauthenticated("the header Authorization is not: Bearer <token>")
    return parse_token(shape[1])


def accept(token: Token | None, presented: PresentedToken, unix_us: int) -> Token:
    """The token that is kept under the id, if the secret is its own and it is still good. Raises
    Unauthenticated, with one text for an unknown id and for a wrong secret."""
    kept = _NOBODY if token is None else token.secret_sha256
    is_equal = hmac.compare_digest(kept, presented.secret.digest())
    if token is None or not is_equal:
        raise Unauthenticated("nobody has this token")
    state = token.state_at(unix_us)
    if state == "revoked":
        raise Unauthenticated("this token was revoked", token=token.id)
    if state == "expired":
        raise Unauthenticated("this token has expired", token=token.id)
    return token


def hide_tokens(text: str) -> str:
    """A text that others wrote, with the secrets taken out of all that looks like a token: for
    logs."""
    return _alike.sub(r"\1...", text)


def check_id(id: str) -> TokenId:
    """Raises InvalidRequest, which does not repeat what may be a whole token."""
    if not isinstance(id, str):
        raise InvalidRequest(f"a token's id is a str, not {type(id).__name__}")
    if _id.fullmatch(id) is None:
        raise InvalidRequest("a token's id is 16 hexadecimal digits, as a list of tokens shows it")
    return id


def check_new(
    name: str, grants: tuple[Grant, ...], created_us: int, expires_us: int | None
) -> None:
    """Raises InvalidRequest, LimitExceeded for what makes no token."""
    _check_name(name)
    if not grants:
        raise InvalidRequest("a token without grants allows nothing: give it at least one")
    check_expiry(expires_us, created_us)


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidRequest(f"a token's name is a str, not {type(name).__name__}")
    if not name.isprintable() or name.strip() != name or not name:
        raise InvalidRequest("a token's name is text, of letters, digits, signs and inner spaces")
    if hide_tokens(name) != name:
        raise InvalidRequest("a token's name says whose it is: this looks like a token itself")
    if len(name) > NAME_LENGTH_MAX:
        raise LimitExceeded(f"a token's name has at most {NAME_LENGTH_MAX} characters")


def check_expiry(expires_us: int | None, unix_us: int) -> None:
    """Raises InvalidRequest unless it is still to come."""
    if expires_us is not None and expires_us <= unix_us:
        raise InvalidRequest("a token expires in the future: it could never be used otherwise")


def _encode(secret: bytes) -> str:
    return urlsafe_b64encode(secret).decode().rstrip("=")
