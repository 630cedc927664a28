"""Whatever a request to the master says, it is answered, and the master goes on.

Every operation of the REST pages, with every field anything at all: what can be decoded goes to a
master, whose answer can be encoded for both ways it may take.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.errors import InvalidRequest
from dodona.types import KEY_MIN, Now
from dodona_oracle.core.master import MasterCore
from dodona_wire.cores.effects import Append, ReplyAtOnce, ReplyTo
from dodona_wire.messages.base import Failure, failure_of
from dodona_wire.messages.catalog import CreateTable
from dodona_wire.messages.json_messages import json_struct_of
from dodona_wire.messages.rest import (
    OPERATIONS,
    Operation,
    decode_request,
    encode_json,
    encode_problem,
    problem_of,
)
from dodona_wire.messages.tree import CreateDirectory
from suite.levels import examples
from unit.oracle.realm import COLUMNS

NOW = Now(0, 0)
COLUMNS_TEXT = msgspec.json.encode(COLUMNS).decode()


def nested(opening: str, depth: int, closing: str) -> str:
    return opening * depth + "1" + closing * depth


numbers = st.sampled_from([0, 1, -1, 2, 1000, 1 << 31, (1 << 63) - 1, 1 << 64, 1 << 70]).map(str)
paths = st.sampled_from(
    ["//t", "//a", "//b", "/", "//", "", "//t/@", "//t/@x", "//t/@max_data_ttl"]
)
depths = st.integers(28, 40) | st.integers(900, 1100)
values = (
    numbers
    | paths.map(lambda path: f'"{path}"')
    | st.sampled_from(
        ["null", "true", "1.5", "1e999", '"\\ud800"', '"\\u0000"', '"full"', '"none"']
    )
    | st.sampled_from(
        ["[]", "{}", '[""]', '["",""]', '{"1":2}', COLUMNS_TEXT, '"' + "y" * 2000 + '"']
    )
    | depths.map(lambda depth: nested("[", depth, "]"))
    | depths.map(lambda depth: nested('{"max_data_ttl":', depth, "}"))
)


def master() -> MasterCore:
    core = MasterCore.recover([], NOW)
    for request in (CreateTable("//t", COLUMNS, "full", (KEY_MIN,)), CreateDirectory("//a")):
        answer(core, request)
    return core


def answer(core: MasterCore, request: Any) -> None:
    core.handle(None, request, NOW)
    replies = [effect for effect in core.take_effects() if not isinstance(effect, Append)]
    (reply,) = replies
    assert isinstance(reply, ReplyTo | ReplyAtOnce)
    if isinstance(reply.body, Failure):
        assert reply.body.kind != "internal"
        encode_problem(problem_of(reply.body))
    else:
        encode_json(reply.body)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_every_request_is_answered(operation: Operation, data: st.DataObject) -> None:
    fields = msgspec.structs.fields(json_struct_of(operation.request))
    of_one = values if operation.has_body else numbers | paths
    said = st.fixed_dictionaries(
        {field.name: of_one for field in fields if field.required},
        optional={field.name: of_one for field in fields if not field.required},
    )
    core = master()
    for _ in range(4):
        query = data.draw(said)
        content = "{" + ",".join(f'"{name}":{text}' for name, text in query.items()) + "}"
        try:
            request = decode_request(operation, list(query.items()), content.encode())
        except InvalidRequest as error:
            encode_problem(problem_of(failure_of(error)))
        else:
            answer(core, request)
