"""The ids of transactions that gateways hold: their parts, their one spelling, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.errors import InvalidRequest
from dodona.types import MAX_TIMESTAMP, Atomicity, Timestamp
from dodona_gateway.core.transaction_id import GATEWAY_MAX, HeldId, parse_held_id

ATOMICITIES: tuple[Atomicity, ...] = ("full", "none")
ids = st.builds(
    HeldId,
    st.integers(1, MAX_TIMESTAMP).map(Timestamp),
    st.sampled_from(ATOMICITIES),
    st.integers(0, GATEWAY_MAX),
    st.integers(0, (1 << 32) - 1),
)


@given(ids)
def test_a_transaction_id_is_parsed_back_from_its_text(its_id: HeldId) -> None:
    assert parse_held_id(str(its_id)) == its_id


def test_the_layout_is_that_of_the_object_ids_of_ytsaurus() -> None:
    held = HeldId(Timestamp(0x1AC0E72C_A1EC4E72), "full", 0xB4C1, 0x983CCB7C)
    assert str(held) == "1ac0e72c-a1ec4e72-b4c10002-983ccb7c"
    plain = HeldId(Timestamp(1), "none", 0, 0)
    assert str(plain) == "0-1-3-0"


@given(st.from_regex(r"[0-9a-f]{1,8}(-[0-9a-f]{1,8}){3}", fullmatch=True))
def test_no_two_texts_are_one_id(text: str) -> None:
    try:
        its_id = parse_held_id(text)
    except InvalidRequest:
        return
    assert str(its_id) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1-1-2",
        "1-1-2-1-1",
        "1-1-2-123456789",
        "1-1-2-G",
        "1-1-2-A",
        "1-1-2-1\n",
        " 1-1-2-1",
        "01-1-2-1",
        "1-1-2-٣",
        "0-0-2-1",
        "3fffffff-ffffff01-2-1",
        "ffffffff-ffffffff-2-1",
        "1-1-1-1",
        "1-1-4-1",
        "1-1-0-1",
        "x" * 100_000,
    ],
)
def test_an_invalid_transaction_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a transaction's id") as refused:
        parse_held_id(text)
    assert refused.value.attributes == {"transaction": text[:64]}
