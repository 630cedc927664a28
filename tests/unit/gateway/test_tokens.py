"""The text of tokens: one spelling, and nothing that shows a secret."""

import copy
import hmac
import pickle
from typing import Any

import msgspec
import pytest

from dodona.errors import InvalidRequest, LimitExceeded, Unauthenticated
from dodona_gateway.core.access.grants import parse_grants
from dodona_gateway.core.access.tokens import (
    NewToken,
    accept,
    check_id,
    hide_tokens,
    new_token,
    parse_authorization,
    parse_token,
)

GRANTS = parse_grants(["read://home/**"])
SECRET = bytes(range(32))
TEXT = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"


def made(**options: Any) -> NewToken:
    fields = {"name": "ada", "grants": GRANTS, "created_us": 5, **options}
    return new_token(**fields, random_bytes=lambda count: SECRET[:count])


def test_a_token_has_this_text() -> None:
    assert made().text == f"dodona_0001020304050607_{TEXT}"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "OAuth", "oauth", "Bearer  "])
def test_an_authorization_header_accepts_the_schemes_bearer_and_oauth(scheme: str) -> None:
    it = made()
    presented = parse_authorization(f"{scheme} {it.text}")
    assert accept(it.token, presented, 6) is it.token


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        f"Basic dodona_0001020304050607_{TEXT}",
        f"dodona_0001020304050607_{TEXT}",
        f"Bearerdodona_0001020304050607_{TEXT}",
        f"Bearer dodona_0001020304050607_{TEXT} ",
        f" Bearer dodona_0001020304050607_{TEXT}",
        f"Bearer dodona_0001020304050607_{TEXT}\n",
        f"Bearer\tdodona_0001020304050607_{TEXT}",
        f"Bearer dodona_0001020304050607_{TEXT}=",
        f"Bearer dodona_0001020304050607_{TEXT[:-1]}",
        f"Bearer dodona_0001020304050607_{TEXT[:-1]}9",  # the same bytes, spelled otherwise
        f"Bearer dodona_000102030405060_{TEXT}",
        f"Bearer dodona_000102030405060A_{TEXT}",
        f"Bearer DODONA_0001020304050607_{TEXT}",
        f"Bearer dodona_0001020304050607-{TEXT}",
        f"Bearer dodona_\u0660001020304050607_{TEXT}",
        f"Bearer dodona_0001020304050607_{TEXT}" + "A" * 10_000,
    ],
)
def test_what_is_no_token_is_refused_and_not_repeated(header: str | None) -> None:
    with pytest.raises(Unauthenticated) as raised:
        parse_authorization(header)
    assert TEXT[:10] not in f"{raised.value} {raised.value.attributes}"
    assert (raised.value.code, raised.value.status) == (900, 401)


def test_an_unknown_id_is_compared_as_a_wrong_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def noted(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    wrong = parse_token(f"dodona_0001020304050607_{'A' * 43}")
    messages = []
    for token in (None, made().token):
        with pytest.raises(Unauthenticated) as raised:
            accept(token, wrong, 6)
        messages.append(str(raised.value))
    assert compared == [(32, 32)] * 2
    assert (
        messages == ["The token is unknown. Check it, or ask an administrator for a new one."] * 2
    )


def test_an_expired_or_revoked_token_is_refused() -> None:
    it = made(expires_us=10)
    presented = parse_token(it.text)
    assert accept(it.token, presented, 9) is it.token
    with pytest.raises(Unauthenticated, match="has expired") as raised:
        accept(it.token, presented, 10)
    assert raised.value.attributes == {"token": it.token.id}
    revoked = msgspec.structs.replace(it.token, revoked_us=100)
    with pytest.raises(Unauthenticated, match="was revoked"):
        accept(revoked, presented, 1)  # whatever the clock of this machine says
    wrong = parse_token(f"dodona_{it.token.id}_{'A' * 43}")
    with pytest.raises(Unauthenticated, match="is unknown"):
        accept(revoked, wrong, 1)  # who does not know the secret is told nothing


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"grants": ()}, InvalidRequest),
        ({"name": ""}, InvalidRequest),
        ({"name": " ada"}, InvalidRequest),
        ({"name": "a\nb"}, InvalidRequest),
        ({"name": 7}, InvalidRequest),
        ({"name": f"dodona_0001020304050607_{TEXT}"}, InvalidRequest),
        ({"name": "a" * 257}, LimitExceeded),
        ({"expires_us": 5}, InvalidRequest),
        ({"expires_us": -1}, InvalidRequest),
    ],
)
def test_a_new_token_with_an_invalid_field_is_refused(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        made(**options)
    assert TEXT not in str(raised.value)


@pytest.mark.parametrize("id", [7, "", "0123", "0123456789ABCDEF", "0123456789abcdef\n"])
def test_an_invalid_token_id_is_refused(id: Any) -> None:
    with pytest.raises(InvalidRequest):
        check_id(id)


def test_a_secret_is_not_copied() -> None:
    secret = parse_token(made().text).secret
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(secret)


def test_the_secrets_of_tokens_are_removed_from_text() -> None:
    text = made().text
    hidden = hide_tokens(f"?token={text}&x=1 {text[:40]} DODONA_0001020304050607_abc")
    assert TEXT[:10] not in hidden
    assert hidden.startswith("?token=dodona_0001020304050607_...&x=1 dodona_0001020304050607_...")
    assert "abc" not in hidden
