"""YTsaurus's API, its pure parts, for any input: parameters, errors, bodies, places in values."""

import gzip
import json
import zlib
from contextlib import suppress
from itertools import pairwise
from typing import Any

import brotli
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest
from dodona_gateway.core.unpacking import unpacker_of
from dodona_ytsaurus.terms.bodies import count_values
from dodona_ytsaurus.terms.errors import HEADER_LENGTH_MAX, error_headers, yt_error
from dodona_ytsaurus.terms.inside import MISSING, inside, put
from dodona_ytsaurus.terms.parameters import Parameters, decode_parameters, parse_path

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def mangled(value: Any) -> Any:
    """As the client writes JSON: a character for each byte of UTF-8, `$` in front doubled."""
    if isinstance(value, str):
        return value.encode().decode("latin-1")
    if isinstance(value, list):
        return [mangled(it) for it in value]
    if isinstance(value, dict):
        return {"$" * k.startswith("$") + mangled(k): mangled(v) for k, v in value.items()}
    return value


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_json_parameters_are_decoded_to_their_meaning(parameters: dict[str, Any]) -> None:
    content = json.dumps(mangled(parameters)).encode()
    assert decode_parameters(content, is_json=True) == parameters


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_parameters_or_refused(content: bytes, is_json: bool) -> None:
    try:
        decoded = decode_parameters(content, is_json=is_json)
    except InvalidRequest:
        return
    assert isinstance(decoded, dict)


@given(VALUES, st.sampled_from(["text", "flag", "number", "items", "texts", "map", "path"]))
def test_any_value_is_of_the_type_or_refused(value: Any, access: str) -> None:
    with suppress(InvalidRequest):
        getattr(Parameters({"name": value}), access)("name")


@given(st.text(st.sampled_from("/@&#<>=%a1[]{}-")))
def test_any_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except InvalidRequest:
        return
    assert path.node
    assert (path.attribute is None) <= (path.inside == ())


@given(st.text(max_size=3_000), st.dictionaries(st.text(max_size=9), VALUES, max_size=3))
def test_headers_of_any_error_are_short_lines_of_ascii(message: str, about: Any) -> None:
    told = yt_error(InvalidRequest(message, about=about))
    for value in error_headers(told).values():
        assert all(" " <= it <= "~" for it in value)
        assert len(value) <= HEADER_LENGTH_MAX
    in_header = json.loads(error_headers(told)["X-YT-Error"])
    assert told.message.startswith(in_header["message"])


@given(
    st.binary(max_size=3_000),
    st.sampled_from([("gzip", gzip.compress), ("gzip", zlib.compress), ("br", brotli.compress)]),
    st.lists(st.integers(0, 400), max_size=6),
    st.integers(0, 5),
)
def test_an_unpacked_body_equals_the_original_and_a_cut_body_is_refused(
    content: bytes, packing: Any, cuts: list[int], lost_count: int
) -> None:
    encoding, pack = packing
    packed = pack(content)
    packed = packed[: len(packed) - lost_count]
    places = [0, *sorted(cuts), len(packed)]
    unpacker = unpacker_of(encoding)
    try:
        parts = [packed[a:b] for a, b in pairwise(places) if a < b]
        whole = b"".join(piece for part in parts for piece in unpacker.feed(part))
        unpacker.finish()
    except InvalidRequest:
        assert lost_count
    else:
        assert whole == content
        assert not lost_count


@given(VALUES, st.sampled_from(["a", "0", "1", "-1", "end", "x", ""]), VALUES)
def test_a_value_that_was_put_is_found(target: Any, name: str, value: Any) -> None:
    was_there = inside(target, name) is not MISSING
    if put(target, name, value):
        assert inside(target, name) == value or (name == "end" and target[-1] == value)
    else:
        assert not was_there


@given(VALUES, st.sampled_from(["a", "0", "-1", "end", "x"]))
def test_a_removal_succeeds_only_for_an_existing_value(target: Any, name: str) -> None:
    was_there = inside(target, name) is not MISSING
    assert put(target, name, MISSING) == was_there


@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), max_size=4))
def test_values_are_counted(rows: list[dict[str, Any]]) -> None:
    def count(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value
        return sum(1 + (count(it) if isinstance(it, dict | list) else 0) for it in inner)

    assert count_values(rows) == sum(map(count, rows))
