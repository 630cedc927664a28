"""In which form a body comes, and in which the answer leaves: JSON or MessagePack. Pure.

Owns: the media types, the choice between them, and typed decoding. MessagePack has bytes and every
number, and rows leave in it as they are; JSON spells them as `dodona_wire.rows.text_format` says.
"""

from typing import Any, Final, Literal, TypeVar

import msgspec

from dodona_wire.errors import (
    InvalidRequest,
    NotAcceptable,
    SchemaViolation,
    UnsupportedMediaType,
)
from dodona_wire.messages.rest import JSON_TYPE
from dodona_wire.rows.json_text import (
    Place,
    column_refusal,
    name_refusal,
    repeated_name,
    without_mark,
)
from dodona_wire.rows.packed_names import repeated_in_packed
from dodona_wire.rows.text_format import may_be_marked, place_of_misread, unmarked

MSGPACK_TYPE: Final = "application/msgpack"
NDJSON_TYPE: Final = "application/x-ndjson"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"

Form = Literal["json", "msgpack", "ndjson", "arrow"]
FORMS: Final[dict[str, Form]] = {
    JSON_TYPE: "json",
    MSGPACK_TYPE: "msgpack",
    "application/x-msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    NDJSON_TYPE: "ndjson",
    "application/jsonl": "ndjson",
    ARROW_TYPE: "arrow",
}
TYPES: Final[dict[Form, str]] = {
    "json": JSON_TYPE,
    "msgpack": MSGPACK_TYPE,
    "ndjson": NDJSON_TYPE,
    "arrow": ARROW_TYPE,
}

Wanted = TypeVar("Wanted")

ROW_FIELDS: Final = ("rows", "keys")
"""Of a body: lists of objects from column to value."""
VALUE_FORMS: Final[tuple[Form, ...]] = ("json", "msgpack")
"""Of what is one value."""
STREAM_FORMS: Final[tuple[Form, ...]] = ("arrow", "msgpack", "ndjson")
"""Of what comes piece by piece."""


def form_of(content_type: str | None, taken: tuple[Form, ...]) -> Form:
    """The form of a body. It has to be said: what says nothing may come from a page in somebody's
    browser. Raises UnsupportedMediaType."""
    media = (content_type or "nothing").partition(";")[0].strip().lower()
    form = FORMS.get(media)
    if form is None or form not in taken:
        names = ", ".join(TYPES[it] for it in taken)
        text = f"the header Content-Type is one of {names}, not {media[:100]}"
        hint = " (curl sends JSON with --json)" if media.endswith("urlencoded") else ""
        raise UnsupportedMediaType(text + hint)
    return form


def wanted_form(accept: str | None, given: tuple[Form, ...]) -> Form:
    """The form that a caller likes best of those that can be given; the first if it does not
    matter. Raises NotAcceptable."""
    if not accept or accept == "*/*":
        return given[0]
    likings: list[tuple[float, Form]] = []
    for place in accept[:1000].split(","):
        media, *parameters = [it.strip().lower() for it in place.split(";")]
        liking = _quality(parameters)
        form = FORMS.get(media)
        if media in ("*/*", "application/*"):
            form = given[0]
        if form in given and liking > 0:
            likings.append((liking, form))
    if not likings:
        names = ", ".join(TYPES[it] for it in given)
        raise NotAcceptable(f"the answer can be one of {names}, not {accept[:100]}")
    return max(likings, key=lambda it: it[0])[1]


def _quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def decode_body(content: bytes, form: Form, wanted: type[Wanted]) -> Wanted:
    """A body as the struct that it is to be. Raises InvalidRequest, which says where."""
    try:
        if form == "msgpack":
            asked = msgspec.msgpack.decode(content, type=wanted)
            place = repeated_in_packed(content, msgspec.msgpack.decode(content))
        else:
            content = without_mark(content)
            plain = msgspec.json.decode(content)
            place = repeated_name(content, plain)
            if may_be_marked(content):
                asked = msgspec.convert(_unmarked(plain), wanted)
            else:  # so that an error names what JSON has, and 64 bits stay 64 bits
                asked = msgspec.json.decode(content, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise InvalidRequest(f"the body is not as it must be: {error}") from error
    if place:
        raise _repeated(place)
    return asked


def _repeated(place: Place) -> SchemaViolation:
    """Names the row and the column, where the name is in one."""
    field, *inner = place
    if field not in ROW_FIELDS or len(inner) < 2:
        return name_refusal(place)
    return column_refusal(inner[1:], row_index=inner[0])


def _unmarked(body: Any) -> Any:
    """Raises SchemaViolation, which names the row and the column, where it is in one."""
    try:
        return unmarked(body, "body")
    except SchemaViolation as error:
        field, *place = [*place_of_misread(body), None]
        if field in ROW_FIELDS and len(place) > 2:
            error.attributes.update(row_index=place[0], column=place[1])
        raise


def encode_body(value: Any, form: Form) -> bytes:
    """An answer. In JSON, what it lacks has been converted before."""
    return msgspec.msgpack.encode(value) if form == "msgpack" else msgspec.json.encode(value)
