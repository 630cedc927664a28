"""The document of a log: its JSON is strict, and only legal changes are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona_replication.core.document import (
    DOCUMENT_BYTES_MAX,
    EPOCH_MAX,
    MEMBERS_MAX,
    NAME_LENGTH_MAX,
    Document,
    decode,
    encode,
    owner_id,
)
from dodona_replication.core.errors import DocumentUnreadable, IllegalChange
from dodona_wire.errors import InvalidRequest

OWNER = owner_id("node-1", b"12345678")
OTHER = owner_id("node-1", b"87654321")
OWNED = Document(3, OWNER, ("a", "b"), 2, False)
TEXT = encode("cell-1", OWNED).decode()

NAMES = st.from_regex(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_LENGTH_MAX - 1}}}", fullmatch=True)
OWNERS = st.builds(owner_id, NAMES, st.binary(min_size=8, max_size=8))
MEMBERS = st.lists(NAMES, min_size=1, max_size=MEMBERS_MAX, unique=True).map(tuple)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    members = draw(MEMBERS)
    document = Document.initial(members, draw(st.integers(1, len(members))))
    if draw(st.booleans()):
        document = document.take_over(draw(OWNERS))
        document = Document(
            draw(st.integers(1, EPOCH_MAX)),
            document.owner,
            members,
            document.copies_min,
            draw(st.booleans()),
        )
    return document


@given(documents())
def test_a_document_survives_its_json(document: Document) -> None:
    data = encode("cell-1", document)
    assert decode("cell-1", data) == document
    assert len(data) <= DOCUMENT_BYTES_MAX, "the largest legal document fits"


def test_the_json_is_easy_to_read() -> None:
    assert TEXT == (
        '{"epoch":3,"owner":"node-1/3132333435363738","members":["a","b"],"copies_min":2,'
        '"released":false}'
    )


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("epoch", '"epoch":3', '"epoch":-1'),
        ("epoch", '"epoch":3', '"epoch":3.0'),
        ("epoch", '"epoch":3', '"epoch":true'),
        ("epoch", '"epoch":3', '"epoch":"3"'),
        ("epoch", '"epoch":3', f'"epoch":{EPOCH_MAX + 1}'),
        ("epoch", '"epoch":3', '"epoch":' + "9" * 1_000),
        ("epoch", '"epoch":3,', ""),
        ("epoch", "{", '{"epoch":3,'),
        ("epoch", '"epoch"', r'"ep\u006fch":4,"epoch"'),
        ("address", "{", '{"address":"x",'),
        ("owner", '"epoch":3', '"epoch":0'),
        ("owner", f'"{OWNER}"', "null"),
        ("owner", OWNER, ""),
        ("owner", OWNER, "node-1"),
        ("owner", OWNER, "node-1/31323334"),
        ("owner", OWNER, OWNER + "0"),
        ("owner", OWNER, OWNER.upper() + "A"),
        ("owner", OWNER, "/" + OWNER),
        ("members", '"a"', '""'),
        ("members", '"a"', '"b"'),
        ("members", '"a"', '"a b"'),
        ("members", '"a"', '"ä"'),
        ("members", '"a"', f'"{"a" * (NAME_LENGTH_MAX + 1)}"'),
        ("members", '"a"', "7"),
        ("members", '"a",', ""),
        ("members", '["a","b"]', "{}"),
        ("members", '"a"', ",".join(f'"r{at}"' for at in range(MEMBERS_MAX))),
        ("copies_min", '"copies_min":2', '"copies_min":0'),
        ("released", "false", "0"),
        ("released", "false", "null"),
        ("", "}", ""),
        ("", "}", "} x"),
        ("", TEXT, ""),
        ("", TEXT, "[]"),
        ("", "}", "}" + " " * DOCUMENT_BYTES_MAX),
    ],
)
def test_an_unreadable_document_names_the_log_and_the_field(field: str, old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(DocumentUnreadable, match="cell-1") as caught:
        decode("cell-1", TEXT.replace(old, new, 1).encode())
    assert (caught.value.attributes["log"], caught.value.attributes["field"]) == ("cell-1", field)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    with pytest.raises(DocumentUnreadable):
        decode("cell-1", data)


def test_spaces_and_the_order_of_fields_are_free() -> None:
    text = (
        '{ "released" : false, "copies_min": 2, "members": ["a", "b"],\n "owner": "%s", "epoch":3}'
    )
    assert decode("cell-1", (text % OWNER).encode()) == OWNED


def test_what_no_process_could_read_is_not_encoded() -> None:
    with pytest.raises(DocumentUnreadable):
        encode("cell-1", Document(1, "node-1", ("a",), 1, False))


def test_a_log_begins_without_an_owner() -> None:
    first = Document.initial(["a", "b"], 2)
    assert first == Document(0, None, ("a", "b"), 2, True)
    with pytest.raises(IllegalChange):
        Document.initial(["a"], 2)
    with pytest.raises(IllegalChange, match="released"):
        first.with_members(["a", "c"])


def test_a_take_over_raises_the_epoch_and_keeps_the_set() -> None:
    for document in (OWNED, OWNED.release()):
        assert document.take_over(OTHER) == Document(4, OTHER, ("a", "b"), 2, False)
    assert OWNED.take_over(OWNER).epoch == 4, "a process takes a new epoch from itself, too"
    with pytest.raises(IllegalChange, match="owner"):
        OWNED.take_over("node-1")


def test_the_set_changes_within_the_epoch() -> None:
    changed = OWNED.with_members(["a", "b", "c"])
    assert changed == Document(3, OWNER, ("a", "b", "c"), 2, False)
    assert changed.with_members(["c", "b"]).members == ("c", "b")


@pytest.mark.parametrize(
    "members",
    [[], ["a"], ["a", "a"], ["a", ""], ["b", "a"], [f"r{at}" for at in range(MEMBERS_MAX + 1)]],
    ids=["none", "below copies_min", "twice", "empty id", "no change", "too many"],
)
def test_an_illegal_set_is_refused(members: list[str]) -> None:
    with pytest.raises(IllegalChange) as caught:
        OWNED.with_members(members)
    assert caught.value.attributes == {"field": "members"}


def test_nothing_changes_in_a_released_epoch() -> None:
    released = OWNED.release()
    assert released == Document(3, OWNER, ("a", "b"), 2, True)
    with pytest.raises(IllegalChange, match="released"):
        released.release()
    with pytest.raises(IllegalChange, match="released"):
        released.with_members(["a", "b", "c"])


def test_two_starts_of_a_process_have_two_ids() -> None:
    assert OWNER.startswith("node-1/")
    assert OWNER != OTHER
    for name, start in (("node-1", b"short"), ("", b"12345678"), ("a/b", b"12345678")):
        with pytest.raises(InvalidRequest):
            owner_id(name, start)
