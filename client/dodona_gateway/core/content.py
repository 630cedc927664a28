"""Choose the form of bodies and answers, such as JSON or MessagePack. Pure.

Owns: the media types, the choice between them, and typed decoding. MessagePack has bytes and every
number, and rows are sent in it unchanged. JSON has them as `dodona_wire.rows.text_format` says.
"""

import re
from typing import Any, Final, Literal, TypeVar

import msgspec

from dodona_wire.errors import (
    InvalidRequest,
    NotAcceptable,
    SchemaViolation,
    UnsupportedMediaType,
)
from dodona_wire.messages.rest import JSON_TYPE
from dodona_wire.near_names import nearest
from dodona_wire.rows.json_text import (
    Place,
    column_refusal,
    name_refusal,
    repeated_name,
    without_mark,
)
from dodona_wire.rows.packed_names import repeated_in_packed
from dodona_wire.rows.text_format import may_be_marked, unmarked

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

_UNKNOWN: Final = re.compile("Object contains unknown field `(.*)`", re.DOTALL)
"""What msgspec says of a field that a body itself does not have."""

ROW_FIELDS: Final = ("rows", "keys")
"""The fields of a body that are lists of objects from column to value."""
VALUE_FORMS: Final[tuple[Form, ...]] = ("json", "msgpack")
"""The forms of a body that is one value."""
STREAM_FORMS: Final[tuple[Form, ...]] = ("arrow", "msgpack", "ndjson")
"""The forms of a body that comes piece by piece."""


def form_of(content_type: str | None, taken: tuple[Form, ...]) -> Form:
    """Return the form of a body. The header is required: a request without it may come from a page
    in a user's browser. Raises UnsupportedMediaType."""
    media = (content_type or "missing").partition(";")[0].strip().lower()
    form = FORMS.get(media)
    if form is None or form not in taken:
        names = ", ".join(TYPES[it] for it in taken)
        text = f"The header Content-Type is {media[:100]}. Use one of {names}."
        hint = " To send JSON with curl, use --json." if media.endswith("urlencoded") else ""
        raise UnsupportedMediaType(text + hint)
    return form


def wanted_form(accept: str | None, given: tuple[Form, ...]) -> Form:
    """Return the form that a caller prefers, of those in `given`; the first if the caller has no
    preference. Raises NotAcceptable."""
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
        raise NotAcceptable(f"The header Accept is {accept[:100]}. Use one of {names}.")
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
    """Decode a body as the struct `wanted`. Rows of JSON are as they came: `json_values` converts
    them. Raises InvalidRequest, which says where."""
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
            else:  # an error then names JSON's types, and 64 bits stay 64 bits
                asked = msgspec.json.decode(content, type=wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        hint = _hint(str(error), wanted)
        raise InvalidRequest(f"The body is not valid: {error}{hint}") from error
    if place:
        raise _repeated(place)
    return asked


def _hint(text: str, wanted: type) -> str:
    """Return the field that the caller meant, if the error is about a misspelled one."""
    found = _UNKNOWN.fullmatch(text)
    near = found and nearest(found[1].lower(), getattr(wanted, "__struct_encode_fields__", ()))
    return f". Did you mean {near!r}?" if near else ""


def _repeated(place: Place) -> SchemaViolation:
    """Return the error for a repeated name, with the row and the column if the name is in a row."""
    field, *inner = place
    if field not in ROW_FIELDS or len(inner) < 2:
        return name_refusal(place)
    return column_refusal(inner[1:], row_index=inner[0])


def _unmarked(body: Any) -> Any:
    """Decode the marked values of a body, except those of rows, whose columns say what they are.
    Raises SchemaViolation."""
    if type(body) is not dict:
        return unmarked(body, "body")
    return {
        name: it if name in ROW_FIELDS else unmarked(it, "body", 1) for name, it in body.items()
    }


def encode_body(value: Any, form: Form) -> bytes:
    """Encode an answer. For JSON, the values that it lacks were converted before."""
    return msgspec.msgpack.encode(value) if form == "msgpack" else msgspec.json.encode(value)
