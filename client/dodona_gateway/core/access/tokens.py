"""Tokens: their text, the record of each token, and the check of a presented one. Pure.

Owns: the text form `dodona_<id>_<secret>`, of which each token has exactly one, and the comparison.
The comparison takes as long for an unknown id as for a wrong secret. A record has a hash of the
secret, never the secret: 256 random bits need no slow hash. No repr, text or error of this module
contains a secret or a hash. Randomness is an argument.
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
"""A function that returns as many bytes as asked for, which are impossible to guess."""

_SHAPE: Final = "dodona_([0-9a-f]{16})_([A-Za-z0-9_-]{43})"
_text: Final = re.compile(_SHAPE, re.ASCII)
_authorization: Final = re.compile("(?:bearer|oauth) +([!-~]+)", re.ASCII | re.IGNORECASE)
_id: Final = re.compile("[0-9a-f]{16}", re.ASCII)
_alike: Final = re.compile(r"(dodona_[0-9a-f]{16}_)[A-Za-z0-9_-]+", re.ASCII | re.IGNORECASE)
_ASK: Final = "Ask an administrator for a new one."
_NOBODY: Final = bytes(hashlib.sha256().digest_size)
"""A hash of which no secret is known. A secret with an unknown id is compared with it."""


class Secret:
    """Bytes that are never shown."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> Any:
        raise TypeError("A secret can't be copied or pickled.")

    def digest(self) -> bytes:
        """Return the hash, which may be kept."""
        return hashlib.sha256(self._value).digest()


class PresentedToken(NamedTuple):
    """A token as a caller sent it, before its check."""

    id: TokenId
    secret: Secret


@preload_decoder
class Token(msgspec.Struct, frozen=True):
    """The record of a token. Times are in Unix microseconds."""

    id: TokenId
    name: str
    """The holder of the token. Several tokens may have one name."""
    secret_sha256: bytes
    grants: tuple[Grant, ...]
    created_us: int
    expires_us: int | None = None
    """None means never."""
    revoked_us: int | None = None
    """None means that the token was not revoked."""

    def __repr__(self) -> str:
        grants = " ".join(map(str, self.grants))
        return f"<Token {self.id} of {self.name!r}: {grants or 'no grants'}>"

    def state_at(self, unix_us: int) -> TokenState:
        """Return the state at a time. A revoked token stays revoked, at any time. A token is
        expired from `expires_us` on."""
        if self.revoked_us is not None:
            return "revoked"
        if self.expires_us is not None and unix_us >= self.expires_us:
            return "expired"
        return "valid"


class NewToken(NamedTuple):
    """A token and its text, which is stored nowhere and is shown once."""

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
    """Make a token. Raises InvalidRequest, LimitExceeded."""
    check_new(name, grants, created_us, expires_us)
    id_bytes, secret = random_bytes(ID_BYTES), random_bytes(SECRET_BYTES)
    assert (len(id_bytes), len(secret)) == (ID_BYTES, SECRET_BYTES)
    id, digest = id_bytes.hex(), Secret(secret).digest()
    token = Token(id, name, digest, grants, created_us, expires_us)
    return NewToken(token, f"dodona_{id}_{_encode(secret)}")


def given_token(name: str, grants: tuple[Grant, ...], text: str, *, created_us: int) -> NewToken:
    """Make a token as `new_token` does, from a text that was made elsewhere. Raises Unauthenticated
    if the text is no token, InvalidRequest, LimitExceeded."""
    check_new(name, grants, created_us, None)
    presented = parse_token(text)
    token = Token(presented.id, name, presented.secret.digest(), grants, created_us)
    return NewToken(token, text)


def parse_token(text: str) -> PresentedToken:
    """Parse the text of a token. Raises Unauthenticated, which does not repeat the text."""
    shape = _text.fullmatch(text)
    secret = b"" if shape is None else urlsafe_b64decode(shape[2] + "=")
    if shape is None or _encode(secret) != shape[2]:
        message = "The text is not a token. A token has the form dodona_<id>_<secret>."
        raise Unauthenticated(message)
    return PresentedToken(shape[1], Secret(secret))


def parse_authorization(header: str | None) -> PresentedToken:
    """Return the token in the value of a header `Authorization`. It follows `Bearer`, or `OAuth`,
    which is YTsaurus's word. Raises Unauthenticated, which does not repeat the value."""
    if header is None:
        message = "The request has no token. Send the header Authorization: Bearer <token>."
        raise Unauthenticated(message)
    shape = _authorization.fullmatch(header) if len(header) <= HEADER_LENGTH_MAX else None
    if shape is None:
        message = "The header Authorization is malformed. Send Authorization: Bearer <token>."
        raise Unauthenticated(message)
    return parse_token(shape[1])


def accept(token: Token | None, presented: PresentedToken, unix_us: int) -> Token:
    """Return the kept token if the presented secret matches it and it is still valid. Raises
    Unauthenticated, with one text for an unknown id and for a wrong secret."""
    kept = _NOBODY if token is None else token.secret_sha256
    is_equal = hmac.compare_digest(kept, presented.secret.digest())
    if token is None or not is_equal:
        message = "The token is unknown. Check it, or ask an administrator for a new one."
        raise Unauthenticated(message)
    state = token.state_at(unix_us)
    if state == "revoked":
        raise Unauthenticated(f"The token was revoked. {_ASK}", token=token.id)
    if state == "expired":
        raise Unauthenticated(f"The token has expired. {_ASK}", token=token.id)
    return token


def hide_tokens(text: str) -> str:
    """Return a text that others wrote, for logs: all parts that look like a token lose their
    secret."""
    return _alike.sub(r"\1...", text)


def check_id(id: str) -> TokenId:
    """Return the id. Raises InvalidRequest, which does not repeat a text that may be a whole
    token."""
    if not isinstance(id, str):
        raise InvalidRequest(f"Pass a token's id as a str, not {type(id).__name__}.")
    if _id.fullmatch(id) is None:
        message = "A token's id is 16 hexadecimal digits. Take it from the list of tokens."
        raise InvalidRequest(message)
    return id


def check_new(
    name: str, grants: tuple[Grant, ...], created_us: int, expires_us: int | None
) -> None:
    """Raise InvalidRequest or LimitExceeded unless a token can be made of these values."""
    _check_name(name)
    if not grants:
        raise InvalidRequest("A token without grants allows nothing. Give it at least one grant.")
    check_expiry(expires_us, created_us)


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidRequest(f"Pass a token's name as a str, not {type(name).__name__}.")
    if not name.isprintable() or name.strip() != name or not name:
        raise InvalidRequest(
            "The name is empty, or has control characters or spaces at its ends. Pass plain text."
        )
    if hide_tokens(name) != name:
        raise InvalidRequest("The name contains a token. Pass the name of the holder.")
    if len(name) > NAME_LENGTH_MAX:
        message = f"A token's name has at most {NAME_LENGTH_MAX} characters. Pass a shorter one."
        raise LimitExceeded(message)


def check_expiry(expires_us: int | None, unix_us: int) -> None:
    """Raise InvalidRequest unless the expiry is still to come."""
    if expires_us is not None and expires_us <= unix_us:
        raise InvalidRequest("The expiry is in the past. Pass a later time.")


def _encode(secret: bytes) -> str:
    return urlsafe_b64encode(secret).decode().rstrip("=")
