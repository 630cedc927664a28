"""Who visits, by headers alone: the cookie, the origin of forms, and moments that people choose."""

import pytest

from dodona.errors import Forbidden, InvalidRequest
from dodona_gateway.core.console.visit import (
    OPEN_PATHS,
    STATIC_FILES,
    authorization_of,
    check_origin,
    clear_cookie,
    is_console,
    set_cookie,
    token_of,
)
from dodona_gateway.shell.console.times import for_picker, read_as_of, show_time_of

TOKEN = "dodona_0123456789abcdef_" + "x" * 43
OWN = "http://10.0.0.1:8502"


def test_the_cookie_is_seen_by_no_script_and_no_other_site() -> None:
    words = set_cookie(TOKEN, is_secure=True).split("; ")
    assert words[0] == f"dodona_token={TOKEN}"
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/console"} <= {*words}
    assert any(it.startswith("Max-Age=") for it in words)
    assert "Secure" not in set_cookie(TOKEN, is_secure=False)
    assert "Max-Age=0" in clear_cookie(is_secure=False).split("; ")


@pytest.mark.parametrize(
    ("cookies", "token"),
    [
        (None, None),
        ("", None),
        ("dodona_token=", None),
        (f"a=b; dodona_token={TOKEN}; c=d", TOKEN),
        ("not_dodona_token=x", None),
        ("dodona_token=" + "x" * 300, None),
        ("dodona_token=a=b", "a=b"),
        (";;;=;", None),
    ],
)
def test_the_token_is_found_among_cookies(cookies: str | None, token: str | None) -> None:
    assert token_of(cookies) == token


def test_the_console_cookie_authorizes_console_paths_only() -> None:
    cookie = (b"cookie", f"dodona_token={TOKEN}".encode())
    assert authorization_of("/console", [cookie]) == f"Bearer {TOKEN}"
    assert authorization_of("/console/parts/cluster", [cookie]) == f"Bearer {TOKEN}"
    for path in ("/v1/tables", "/consoles", "/api/v4/get", "/"):
        assert authorization_of(path, [cookie]) is None
    header = (b"authorization", b"Bearer other")
    assert authorization_of("/console", [cookie, header]) == "Bearer other"
    assert authorization_of("/v1/tables", [header, (b"authorization", b"x")]) == "Bearer other"
    assert authorization_of("/console", []) is None


def test_only_the_door_is_open() -> None:
    assert all(is_console(it) for it in OPEN_PATHS)
    assert len(OPEN_PATHS) == len(STATIC_FILES) + 2


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        (OWN, "10.0.0.1:8502", True),
        ("http://localhost:8502", "localhost:8502", True),
        ("HTTP://LOCALHOST:8502", "localhost:8502", True),
        (OWN, "behind.a.proxy", True),  # by its public address
        ("https://dodona.example", "dodona.example", True),
        (None, "localhost:8502", False),
        ("", "localhost:8502", False),
        ("null", "localhost:8502", False),
        ("http://localhost:9999", "localhost:8502", False),
        ("http://evil.example", "localhost:8502", False),
        ("http://localhost:8502.evil.example", "localhost:8502", False),
        ("ftp://localhost:8502", "localhost:8502", False),
        ("http://", "", False),
        ("http://[", "x", False),
        (None, None, False),
    ],
)
def test_forms_come_from_pages_of_ours(origin: str | None, host: str | None, is_own: bool) -> None:
    if is_own:
        check_origin(origin, host, OWN)
    else:
        with pytest.raises(Forbidden):
            check_origin(origin, host, OWN)


# ---- as of


def test_a_time_without_an_offset_is_read_as_utc() -> None:
    noon = 1_914_382_028_950_732_800
    for text in ("2026-07-01T12:00:00", "2026-07-01T14:00:00+02:00"):
        chosen = read_as_of({"as_of": "time", "time": text, "timestamp": "7"})
        assert (chosen.choice, chosen.timestamp) == ("time", noon)
    assert (show_time_of(noon), for_picker(noon)) == ("2026-07-01 12:00:00", "2026-07-01T12:00:00")
    assert show_time_of(1 << 62) == ""


def test_a_timestamp_is_itself_and_now_is_none() -> None:
    chosen = read_as_of({"as_of": "timestamp", "timestamp": " 1914382028950732801 "})
    assert chosen.timestamp == 1_914_382_028_950_732_801
    assert read_as_of({}).timestamp is None
    assert read_as_of({"as_of": "now", "time": "nonsense"}).timestamp is None


@pytest.mark.parametrize(
    "fields",
    [
        {"as_of": "time"},
        {"as_of": "time", "time": "yesterday"},
        {"as_of": "timestamp", "timestamp": ""},
        {"as_of": "timestamp", "timestamp": "-1"},
        {"as_of": "timestamp", "timestamp": "0"},
        {"as_of": "timestamp", "timestamp": "20260701"},
        {"as_of": "timestamp", "timestamp": "9" * 20},
        {"as_of": "timestamp", "timestamp": "9" * 5000},
        {"as_of": "timestamp", "timestamp": "\uff11\uff12"},
        {"as_of": "whenever"},
    ],
)
def test_an_invalid_time_or_timestamp_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        read_as_of(fields)
