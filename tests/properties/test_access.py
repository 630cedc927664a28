"""Access: patterns against a naive reading of them, and spellings that try to widen a grant."""

import re
from base64 import urlsafe_b64encode

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dodona.errors import DodonaError, Unauthenticated
from dodona_gateway.core.access.grants import ROLES, Grant, Role, need_of, parse_grants
from dodona_gateway.core.access.paths import node_names
from dodona_gateway.core.access.tokens import (
    accept,
    new_token,
    parse_authorization,
    parse_token,
)
from dodona_oracle.core.paths import parse_path

NAMES = st.sampled_from(["a", "b", "sys", "tokens", "loads", "A", "a.b", "..."])
PATHS = st.lists(NAMES, max_size=4).map(lambda names: "//" + "/".join(names))
HEADS = st.lists(st.one_of(NAMES, st.just("*")), min_size=1, max_size=3)
PATTERNS = st.one_of(
    st.just("/"),
    st.just("//**"),
    HEADS.map(lambda names: "//" + "/".join(names)),
    HEADS.map(lambda names: "//" + "/".join([*names, "**"])),
)
ROLE = st.sampled_from(ROLES)
GRANTS = st.lists(st.tuples(ROLE, PATTERNS), max_size=4)

ODD = st.lists(
    st.sampled_from(
        [*"/@.*-_a&#<>[]%\\~ \t\n\0é/", "//", "/@", "..", "sys", "tokens", "%2f", "//home/bank"]
    ),
    max_size=12,
).map("".join)


def naively(role: Role, path: str, grants: list[tuple[Role, str]], subtree: bool) -> bool:
    """By regular expressions over the text, and for a subtree by what it might contain."""
    path = "/" + path.lstrip("/") if path.strip("/") else ""
    below = path + "/x/y/z"
    has_tokens = (path + "/").startswith("/sys/tokens/")
    if has_tokens or (subtree and path in ("", "/sys")):
        return any(it == "admin" and pattern in ("/", "//**") for it, pattern in grants)
    if role == "write" and (path + "/").startswith("/sys/"):
        role = "admin"
    roles = {"read": ROLES, "write": ("write", "admin"), "admin": ("admin",)}[role]
    for granted, pattern in grants:
        pattern = "/**" if pattern in ("/", "//**") else pattern[1:]
        shape = re.escape(pattern).replace(r"/\*\*", "(/.*)?").replace(r"\*", "[^/]+")
        wanted = [path, below] if subtree else [path]
        if granted in roles and all(re.fullmatch(shape, it) for it in wanted):
            return True
    return False


@given(ROLE, PATHS, GRANTS, st.booleans())
@example("read", "//sys/tokens", [("read", "/")], False)
@example("write", "//", [("write", "//**")], True)
def test_grants_allow_the_same_calls_as_a_naive_reading_of_them(
    role: Role, path: str, grants: list[tuple[Role, str]], subtree: bool
) -> None:
    parsed = parse_grants([f"{it}:{pattern}" for it, pattern in grants])
    allowed = need_of(role, path, subtree=subtree).is_met_by(parsed)
    assert allowed == naively(role, path, grants, subtree)


@given(ROLE, PATHS, GRANTS, st.lists(NAMES, max_size=3))
def test_a_grant_for_a_subtree_allows_all_paths_in_it(
    role: Role, path: str, grants: list[tuple[Role, str]], names: list[str]
) -> None:
    parsed = parse_grants([f"{it}:{pattern}" for it, pattern in grants])
    assume(need_of(role, path, subtree=True).is_met_by(parsed))
    inside = "/".join([path if path != "//" else "/", *names]) if names else path
    for subtree in (False, True):
        assert need_of(role, inside, subtree=subtree).is_met_by(parsed)


@given(ODD)
@example("//@x")
@example("/@x")
@example("///@x")
@example("//home/bank/@a/@b")
def test_a_path_names_the_node_that_the_catalog_finds(path: str) -> None:
    """Wherever both can read it; what the catalog reads, access does, but for . and .. ."""
    try:
        names = parse_path(path).names
    except DodonaError:
        return
    try:
        ours = node_names(path)
    except DodonaError:
        assert {".", ".."} & {*names}
    else:
        assert ours == names


@given(ODD)
@example("//home/bank\n")
@example("//home/bank/../../sys/tokens")
@example("//home/bank//x")
@example("//home/bank/")
@example("///home/bank")
@example("//home/bank/%2e%2e/x")
def test_no_spelling_widens_a_grant(path: str) -> None:
    """What a grant of one directory allows is there, to the letter, in the catalog's own eyes."""
    grants = parse_grants(["admin://home/bank/**"])
    try:
        is_allowed = need_of("write", path).is_met_by(grants)
        names = parse_path(path).names
    except DodonaError:
        return
    assert is_allowed == (names[:2] == ("home", "bank"))


@given(ODD)
def test_a_pattern_is_kept_as_written_or_refused(text: str) -> None:
    try:
        grant = Grant.of("read", text)
    except DodonaError:
        return
    assert grant.pattern == ("//**" if text == "/" else text)
    assert Grant.parse(str(grant)) == grant


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=8, max_size=8))
def test_a_token_accepts_its_own_text_and_no_repr_shows_its_secret(
    secret: bytes, id: bytes
) -> None:
    made = new_token(
        "ada",
        parse_grants(["read:/"]),
        created_us=0,
        random_bytes=lambda count: secret if count == 32 else id,
    )
    presented = parse_token(made.text)
    assert accept(made.token, presented, 1) is made.token
    text = urlsafe_b64encode(secret).decode().rstrip("=")
    assert made.text == f"dodona_{id.hex()}_{text}"
    assert text not in f"{made!r} {made} {made.token!r} {presented!r} {presented.secret!r}"
    assert secret.hex() not in f"{made.token!r}"


@given(st.data())
def test_a_token_with_one_character_changed_is_none(data: st.DataObject) -> None:
    made = new_token(
        "ada", parse_grants(["read:/"]), created_us=0, random_bytes=lambda count: b"\x5a" * count
    )
    place = data.draw(st.integers(0, len(made.text) - 1))
    character = data.draw(st.characters())
    assume(character != made.text[place])
    text = made.text[:place] + character + made.text[place + 1 :]
    kept = {made.token.id: made.token}
    with pytest.raises(Unauthenticated) as raised:
        accept(kept.get(text[7:23]), parse_token(text), 1)
    assert made.text[-43:] not in str(raised.value)


@given(st.text(max_size=300))
def test_a_header_is_a_token_or_refused(header: str) -> None:
    with pytest.raises(Unauthenticated):
        parse_authorization(header)
