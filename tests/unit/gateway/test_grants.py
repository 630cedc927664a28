"""Grants and principals: what is refused, with which words, and the rules of `//sys`."""

import pytest

from dodona.errors import Forbidden, InvalidRequest, LimitExceeded
from dodona_gateway.core.access.grants import GRANTS_MAX, Grant, parse_grants
from dodona_gateway.core.access.paths import node_names
from dodona_gateway.core.access.principal import ANYBODY, Principal


def somebody(*grants: str) -> Principal:
    return Principal("ada", "0123456789abcdef", parse_grants(grants))


@pytest.mark.parametrize(
    ("grant", "allowed", "refused"),
    [
        ("write://home/bank/**", "//home/bank", "//home"),
        ("write://home/bank/**", "//home/bank/a/b", "//home/bankrupt"),
        ("write://home/*/orders", "//home/bank/orders", "//home/orders"),
        ("write://home/*/orders", "//home/x/orders/@schema", "//home/x/y/orders"),
        ("write://home/*", "//home/bank", "//home/bank/a"),
        ("write://home/*/**", "//home/bank/a", "//home"),
        ("write://home", "//home", "//Home"),
        ("write:/", "/", "//sys/loads"),
        ("write://**", "//", "//sys"),
    ],
)
def test_a_pattern_is_for_these_nodes(grant: str, allowed: str, refused: str) -> None:
    principal = somebody(grant)
    for role in ("read", "write"):
        principal.check(role, allowed)
    with pytest.raises(Forbidden):
        principal.check("admin", allowed)
    with pytest.raises(Forbidden):
        principal.check("write", refused)


def test_a_refusal_names_the_missing_grant() -> None:
    with pytest.raises(Forbidden) as raised:
        somebody("read://home/**").check("write", "//home/t/@x")
    assert raised.value.message == (
        "The token of 'ada' does not grant write on //home/t. "
        "Ask an administrator for a token with this grant."
    )
    assert raised.value.attributes == {"role": "write", "path": "//home/t"}
    with pytest.raises(Forbidden) as raised:
        somebody("write://home/*").check("write", "//home/t", subtree=True)
    assert raised.value.attributes == {"role": "write", "path": "//home/t/**"}
    with pytest.raises(Forbidden) as raised:
        somebody("write:/").check("read", "//sys/tokens")
    assert raised.value.attributes == {"role": "admin", "path": "//**"}
    assert (raised.value.code, raised.value.status) == (901, 403)


def test_the_table_of_tokens_is_for_admins_of_everything() -> None:
    almost = somebody("admin://sys/**", "admin://sys/tokens", "admin://home/**", "write:/")
    for path in ("//sys/tokens", "//sys/tokens/@schema", "//sys/tokens/x"):
        assert not almost.allows("read", path)
        assert ANYBODY.allows("admin", path)
    for path in ("/", "//", "//sys", "//sys/tokens"):
        assert not almost.allows("read", path, subtree=True)
        assert ANYBODY.allows("write", path, subtree=True)
    assert almost.allows("write", "//sys/loads", subtree=True)
    assert almost.allows("read", "//sys")
    assert somebody("read://sys/**").allows("read", "//sys/loads")
    assert not somebody("write://sys/**").allows("write", "//sys/loads")


def test_calls_without_a_path_need_the_role_on_some_node_or_on_all_nodes() -> None:
    reader, owner = somebody("read://t"), somebody("admin://home/**")
    reader.check_somewhere("read")
    owner.check_somewhere("write")
    with pytest.raises(Forbidden, match="does not grant write on any node"):
        reader.check_somewhere("write")
    with pytest.raises(Forbidden) as raised:
        owner.check_everywhere("admin")
    assert raised.value.attributes == {"role": "admin", "path": "//**"}
    ANYBODY.check_everywhere("admin")
    somebody("admin:/").check_everywhere("write")
    assert not somebody().allows("read", "//t")


@pytest.mark.parametrize(
    "path",
    [
        *("", " ", "home", "/home", "//home/", "//home//t", "///", "//ho me", "//home\n", "//~t"),
        *("//home/..", "//../home", "//./home", "//home/.", "//home/%2e%2e", "//home/*", "//**"),
        *("//home/t&", "//home/t[1]", "<append=%true>//t", "#1-2-3-4", "//home/\\@t", "//home/tä"),
    ],
)
def test_a_path_has_one_spelling(path: str) -> None:
    with pytest.raises(InvalidRequest):
        ANYBODY.check("read", path)


def test_paths_are_bounded() -> None:
    assert node_names("//" + "a" * 256) == ("a" * 256,)
    assert len(node_names("/" + "/a" * 64)) == 64
    for path in ("//" + "a" * 257, "/" + "/a" * 65, "//" + "a/" * 1000, "//t/@" + "a" * 2000):
        with pytest.raises(LimitExceeded):
            node_names(path)
    with pytest.raises(InvalidRequest):
        node_names(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "grant",
    [
        *("", "read", "//home", "reads://home", "READ://home", "read:", "read://", "read:home"),
        *("read: //home", "read://home/", "read://home/**/t", "read://ho*", "read://***"),
        *("read://home/@x", "read://..", "read://home//t", "read:/home", "read:/**", "own://t"),
    ],
)
def test_a_grant_that_is_none_is_refused(grant: str) -> None:
    with pytest.raises(InvalidRequest):
        Grant.parse(grant)


def test_grants_are_a_bounded_list_without_repetitions() -> None:
    assert list(map(str, parse_grants(["read:/", "read://**", "write://t"]))) == [
        "read://**",
        "write://t",
    ]
    with pytest.raises(LimitExceeded):
        parse_grants([f"read://t{place}" for place in range(GRANTS_MAX + 1)])
    for wrong in ("read:/", b"read:/", 7, None, [7], [None]):
        with pytest.raises(InvalidRequest):
            parse_grants(wrong)
