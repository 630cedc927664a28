"""Functions written for one schema: a row's key, its write, and the row of a key and values.

Owns: the source text of these functions. The schema decides how each row is checked. A loop over
columns, checks and types decides it again for each row, and takes five times as long. The text has
only names and numbers of the schema, and the names are Python literals.
Invariant: a function returns what the schema's own way returns, or None. None is for every row that
is not plain: missing columns, nulls in keys, subclasses, values to convert, and all errors. So
errors are made in one place. Imports no clock and no I/O.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dodona_wire.handlers import is_of_handler
from dodona_wire.rows.keys import DESCENDING, FLIPPED, TAGS, decode_key, encode_key
from dodona_wire.rows.logical_code import check_code, code_of
from dodona_wire.rows.logical_types import LogicalType
from dodona_wire.rows.values import own_copy
from dodona_wire.types import Key, WireWrite, Write

if TYPE_CHECKING:
    from dodona_wire.rows.computed_column import Computed

SCHEMAS_MAX: Final = 1_000
"""Schemas whose functions are kept."""
COLUMNS_MAX: Final = 128
"""Columns of a schema for which functions are worth making."""
PLAIN_BYTES_MAX: Final = 1 << 16
"""Bytes of a text or bytes value in a plain row. No row of such values is too long."""

TEXTS: Final = ("string", "utf8")
TEXT_KEY_BYTES_MAX: Final = 1 << 10
"""Bytes of a text key that `are_plain` accepts."""
NUMBER_BYTES_MAX: Final = 10
"""Bytes for everything else of a column, and four times for a write. Text has ends, values have
heads, and masks have a bit for each column."""

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
_BOUNDS: Final = {"int64": f"{-_SIGN} <= {{0}} < {_SIGN}", "uint64": f"0 <= {{0}} < {1 << 64}"}
_TESTS: Final = {
    "int64": f"type({{0}}) is int and {_BOUNDS['int64']}",
    "uint64": f"type({{0}}) is int and {_BOUNDS['uint64']}",
    "double": "type({0}) is float",
    "boolean": "type({0}) is bool",
    "string": f"type({{0}}) is bytes and len({{0}}) <= {PLAIN_BYTES_MAX}",
    "utf8": f"type({{0}}) is str and len({{0}}) <= {PLAIN_BYTES_MAX} and {{0}}.isascii()",
}
"""Column type → the test whether a value is plain. `any` has none."""
_TEXT: Final = 'b"\\x10" + {0}.replace(b"\\x00", b"\\x00\\xff") + b"\\x00\\x01"'
_KEY_PARTS: Final = {
    "int64": f"integer(3, {{0}} + {_SIGN})",
    "uint64": "integer(4, {0})",
    "boolean": '(b"\\x06\\x01" if {0} else b"\\x06\\x00")',
    "string": _TEXT,
    "utf8": _TEXT.replace("{0}", "{0}.encode()"),
    "-int64": f"integer({TAGS['-int64']}, {_SIGN - 1} - {{0}})",
    "-uint64": f"integer({TAGS['-uint64']}, {_ALL} - {{0}})",
    "-boolean": '(b"\\xf9\\xfe" if {0} else b"\\xf9\\xff")',
    "-string": f"({_TEXT}).translate(flipped)",
    "-utf8": f"({_TEXT.replace('{0}', '{0}.encode()')}).translate(flipped)",
}
"""Key type → the bytes of a value, as in `keys`. Doubles have none."""
_NUMBERS: Final = {
    "int64": f"({{0}} - {_SIGN})",
    "uint64": "{0}",
    "-int64": f"({_SIGN - 1} - {{0}})",
    "-uint64": f"({_ALL} - {{0}})",
}
"""Key type → the value of the number behind the tag, for columns that have a fixed place in a
key."""
_UNESCAPED: Final = '.replace(b"\\x00\\xff", b"\\x00")'
_TEXT_TESTS: Final = {
    "string": 'b"\\x00" not in k0 or k0.count(b"\\x00") == k0.count(b"\\x00\\xff")',
    "utf8": 'b"\\x00" not in k0 and k0.isascii()',
}
"""Type of the text in a key → the test whether it is plain: all zeros are escaped."""
_INTEGER: Final = struct.Struct(">BQ")

Row = Mapping[str, Any]


class ColumnCode(NamedTuple):
    """What a function must know of a column."""

    name: str
    type: str
    """The stored type."""
    is_required: bool
    logical: LogicalType | None = None
    """The type of the user's values, if they are not the stored values."""
    narrow: LogicalType | None = None
    """The type whose range stored values must have, if it is smaller than that of `type`."""
    is_descending: bool = False
    computed: "Computed | None" = None

    @property
    def key_type(self) -> str:
        return DESCENDING + self.type if self.is_descending else self.type


class RowCode(NamedTuple):
    """The functions of a schema. Each returns None for a row that is not plain."""

    key_of: Callable[[Row], Key | None]
    """Returns the key of a row of key columns only."""
    write_of: Callable[[Row], Write | None]
    """Returns the write of a row of all columns: overwrites and updates are the same then."""
    row_of: Callable[[Key, tuple[Any, ...]], dict[str, Any] | None]
    """Returns the row of an encoded key and all values, for its caller to keep."""
    are_plain: Callable[[Sequence[WireWrite], Key, Key], bool | None]
    """Returns whether all these writes, as a client sent them, have all columns and are plain.
    Their keys must be at least the first key and below the second."""
    bytes_max: int
    """The size on the wire that no write of a plain row exceeds."""


def no_row(*_: Any) -> None:
    """Return None, for schemas without a short path."""
    return


NO_CODE: Final = RowCode(no_row, no_row, no_row, no_row, 0)


@lru_cache(SCHEMAS_MAX)
def row_code(keys: tuple[ColumnCode, ...], values: tuple[ColumnCode, ...]) -> RowCode:
    """Return the functions of a schema with these columns."""
    if len(keys) + len(values) > COLUMNS_MAX:
        return NO_CODE
    return RowCode(
        _key_of(keys),
        _write_of(keys, values),
        _row_of(keys, values),
        _are_plain(keys, values),
        _bytes_max(keys, values),
    )


def _bytes_max(keys: Sequence[ColumnCode], values: Sequence[ColumnCode]) -> int:
    """Return the largest size: see `dodona_wire.rows.sizes`. In a key, a zero byte takes two."""
    text_count = 2 * sum(it.type in TEXTS for it in keys) + sum(it.type in TEXTS for it in values)
    return text_count * PLAIN_BYTES_MAX + NUMBER_BYTES_MAX * (4 + len(keys) + len(values))


def _compile(
    name: str, lines: Sequence[str], columns: Sequence[ColumnCode] = ()
) -> Callable[..., Any]:
    scope: dict[str, Any] = {
        "integer": _INTEGER.pack,
        "flipped": FLIPPED,
        "own_copy": own_copy,
        "is_of_handler": is_of_handler,
    }
    for column in columns:
        if column.logical is not None:
            scope.update(code_of(column.logical).scope)
        if column.narrow is not None:
            scope.update(check_code(column.narrow).scope)
        if column.computed is not None:
            scope.update(column.computed.code_scope)
    exec("\n".join(lines), scope)
    made: Callable[..., Any] = scope[name]
    return made


def _key_of(keys: Sequence[ColumnCode]) -> Callable[[Row], Key | None]:
    if not _is_plain_key(keys):
        return no_row
    return _compile("key_of", _function("key_of", keys, (), _key_text(keys)), keys)


def _function(
    name: str, keys: Sequence[ColumnCode], values: Sequence[ColumnCode], result: str
) -> list[str]:
    """Return a function of a row with all of these columns, or with all but the computed ones. It
    has the columns in `k0`, `k1`, ... and `v0`, `v1`, ..."""
    size = len(keys) + len(values)
    given = [(at, it) for at, it in enumerate(keys) if it.computed is None]
    sizes = f"len(row) == {size}"
    if len(given) < len(keys):
        sizes = f"({sizes} or len(row) == {len(given) + len(values)})"
    tests = [_test(it, f"k{at}") for at, it in given] + _value_tests(values)
    return [
        f"def {name}(row):",
        f"    if type(row) is dict and {sizes}:",
        "        try:",
        *[f"            k{at} = row[{it.name!r}]" for at, it in given],
        *[f"            v{at} = row[{it.name!r}]" for at, it in enumerate(values)],
        "        except KeyError:",
        "            return None",
        f"        if {' and '.join(tests)}:",
        *_computing(keys, size),
        f"            return {result}",
        "    return None",
    ]


def _computing(keys: Sequence[ColumnCode], size: int) -> list[str]:
    """Return the lines that compute key columns, and compare them with those of a row that has all
    of the columns."""
    stored = [f"({_stored(it, f'k{at}')})" for at, it in enumerate(keys)]
    lines, tests, same = [], [], []
    for at, it in enumerate(keys):
        if it.computed is None:
            continue
        lines.append(f"                k{at} = {it.computed.code(stored)}")
        if it.type in TEXTS:
            tests.append(_test(it, f"k{at}"))
        same.append(f"row.get({it.name!r}) == k{at} and type(row[{it.name!r}]) is type(k{at})")
    if not lines:
        return []
    tests.append(f"(len(row) != {size} or {' and '.join(same)})")
    return [
        "            try:",
        *lines,
        "            except (ValueError, ZeroDivisionError) as error:",
        "                if is_of_handler(error):",
        "                    raise",
        "                return None",
        f"            if not ({' and '.join(tests)}):",
        "                return None",
    ]


def _write_of(
    keys: Sequence[ColumnCode], values: Sequence[ColumnCode]
) -> Callable[[Row], Write | None]:
    if not _is_plain_key(keys) or any(it.type not in _TESTS for it in values):
        return no_row
    given = "".join(f"{_stored(it, f'v{at}')}, " for at, it in enumerate(values))
    result = f"{_key_text(keys)}, {(1 << len(values)) - 1}, ({given})"
    return _compile("write_of", _function("write_of", keys, values, result), [*keys, *values])


def _are_plain(
    keys: Sequence[ColumnCode], values: Sequence[ColumnCode]
) -> Callable[[Sequence[WireWrite], Key, Key], bool | None]:
    """Keys are integers, checked by length and tags; or one short text without zero bytes."""
    if not values or any(it.type not in _TESTS for it in values):
        return no_row
    if any(it.computed is not None for it in keys):
        return _are_plain_computed(keys, values)
    if all(it.key_type in _NUMBERS for it in keys):
        tags = bytes(TAGS[it.key_type] for it in keys)
        key_test = f"len(key) == {9 * len(keys)} and key[::9] == {tags!r}{_key_ranges(keys)}"
    elif len(keys) == 1 and keys[0].type in TEXTS and keys[0].narrow is None:
        is_flipped = keys[0].is_descending
        first, text = ("(text := key.translate(flipped))", "text") if is_flipped else ("key", "key")
        key_test = (
            f'len(key) <= {TEXT_KEY_BYTES_MAX} and {first}[:1] == b"\\x10" and {text}.isascii() '
            f'and {text}.find(b"\\x00") == len(key) - 2 and {text}[-1:] == b"\\x01"'
        )
    else:
        return no_row
    given = "".join(f"v{at}, " for at in range(len(values)))
    return _compile(
        "are_plain",
        [
            "def are_plain(writes, lower, upper):",
            "    for key, mask, values in writes:",
            f"        if mask != {(1 << len(values)) - 1} or len(values) != {len(values)}:",
            "            return False",
            f"        {given}= values",
            f"        if not (lower <= key < upper and {key_test}",
            f"                and {' and '.join(_value_tests(values))}):",
            "            return False",
            "    return True",
        ],
        values,
    )


def _are_plain_computed(
    keys: Sequence[ColumnCode], values: Sequence[ColumnCode]
) -> Callable[[Sequence[WireWrite], Key, Key], bool | None]:
    """Keys are ascending integers, perhaps followed by one short text without zero bytes. The
    computed columns are computed again."""
    if any(it.is_descending for it in keys):
        return no_row
    numbers = [it for it in keys if it.type in _NUMBERS]
    count, end = len(numbers), 9 * len(numbers)
    rest = keys[count:]
    is_fit = list(keys[:count]) == numbers and len(rest) <= 1
    if not is_fit or any(it.type not in TEXTS or it.narrow is not None for it in rest):
        return no_row
    fields = struct.Struct(">" + "BQ" * count)
    stored = [_NUMBERS[it.type].format(f"k{at}") for at, it in enumerate(numbers)]
    tests = [f"{TEXT_KEY_BYTES_MAX} >= len(key) >= {end}" if rest else f"len(key) == {end}"]
    tests.append(f"key[:{end}:9] == {bytes(TAGS[it.type] for it in numbers)!r}")
    if rest:
        tests += [
            f"key.find(b'\\x00', {end}) == len(key) - 2 and key[-1:] == b'\\x01'",
            f"key[{end}:{end + 1}] == b'\\x10' and key[{end}:].isascii()",
        ]
        stored.append(f"key[{end + 1}:-2]")
    computed = [(stored[at], it.computed) for at, it in enumerate(keys) if it.computed is not None]
    codes = [it.code(stored, are_bytes=True) for _, it in computed]
    if None in codes:
        return no_row
    same = [f"{name} == {code}" for (name, _), code in zip(computed, codes, strict=True)]
    made = _compile(
        "bind",
        [
            "def bind(unpack):",
            "    def are_plain(writes, lower, upper):",
            "        for key, mask, values in writes:",
            f"            if mask != {(1 << len(values)) - 1} or len(values) != {len(values)}:",
            "                return False",
            f"            {''.join(f'v{at}, ' for at in range(len(values)))}= values",
            f"            if not (lower <= key < upper and {' and '.join(tests)}",
            f"                    {_key_ranges(numbers)}",
            f"                    and {' and '.join(_value_tests(values))}):",
            "                return False",
            f"            {''.join(f't{at}, k{at}, ' for at in range(count))}= unpack(key)",
            "            try:",
            f"                if not ({' and '.join(same)}):",
            "                    return False",
            "            except (ValueError, ZeroDivisionError) as error:",
            "                if is_of_handler(error):",
            "                    raise",
            "                return False",
            "        return True",
            "    return are_plain",
        ],
        [*keys, *values],
    )
    plain: Callable[[Sequence[WireWrite], Key, Key], bool | None] = made(fields.unpack_from)
    return plain


def _key_ranges(keys: Sequence[ColumnCode]) -> str:
    """Return the tests of integers in a key whose range is narrower than that of 64 bits."""
    tests = ""
    for at, it in enumerate(keys):
        if it.narrow is not None:
            values = (it.narrow.lowest, it.narrow.highest)
            first, last = sorted([encode_key([end], [it.key_type]) for end in values])
            tests += f" and {first!r} <= key[{9 * at}:{9 * at + 9}] <= {last!r}"
    return tests


def _test(column: ColumnCode, name: str) -> str:
    """Return the test whether a value is plain, for a user's values or for stored ones."""
    if column.narrow is not None:
        test = f"{_TESTS[column.type]} and {check_code(column.narrow).test}"
        return test.format(name)
    plain = _TESTS[column.type] if column.logical is None else code_of(column.logical).test
    return plain.format(name)


def _stored(column: ColumnCode, name: str) -> str:
    """Return the stored form of a user's value."""
    if column.logical is None:
        return name
    stored = code_of(column.logical).store.format(name)
    is_bare = column.is_required or stored == name
    return stored if is_bare else f"{name} if {name} is None else {stored}"


def _loaded(column: ColumnCode, name: str) -> str:
    """Return a user's value of the stored form, which may be None."""
    if column.logical is None:
        return name
    loaded = code_of(column.logical).load.format(name)
    return name if loaded == name else f"{name} if {name} is None else {loaded}"


def _value_tests(values: Sequence[ColumnCode]) -> list[str]:
    """Return the tests of `v0`, `v1` ..."""
    tests = [_test(it, f"v{at}") for at, it in enumerate(values)]
    return [
        test if it.is_required else f"(v{at} is None or {test})"
        for at, (it, test) in enumerate(zip(values, tests, strict=True))
    ]


def _row_of(
    keys: Sequence[ColumnCode], values: Sequence[ColumnCode]
) -> Callable[[Key, tuple[Any, ...]], dict[str, Any]]:
    """Only values of type any are copied: the caller could change no others."""

    def made(names: Sequence[str], texts: Sequence[str]) -> str:
        pairs = zip(names, texts, strict=True)
        return f"{{{', '.join([f'{name!r}: {text}' for name, text in pairs])}}}"

    shown = [
        f"own_copy(v{at})" if it.type == "any" and it.logical is None else _loaded(it, f"v{at}")
        for at, it in enumerate(values)
    ]
    return _reader(keys, range(len(keys)), values, shown, made)


@lru_cache(SCHEMAS_MAX)
def tuple_code(
    keys: tuple[ColumnCode, ...], places: tuple[int, ...], values: tuple[ColumnCode, ...]
) -> Callable[[Key, tuple[Any, ...]], tuple[Any, ...]] | None:
    """Return the function that makes a tuple of users' values of an encoded key and stored values.
    The tuple has the key columns at these places, then the values. Values of type any are not
    copied. None for too many columns."""
    if len(keys) + len(values) > COLUMNS_MAX:
        return None
    shown = [_loaded(it, f"v{at}") for at, it in enumerate(values)]
    return _reader(keys, places, values, shown, lambda _, texts: f"({', '.join([*texts, ''])})")


def _reader(
    keys: Sequence[ColumnCode],
    places: Sequence[int],
    values: Sequence[ColumnCode],
    shown: Sequence[str],
    made: Callable[[Sequence[str], Sequence[str]], str],
) -> Callable[[Key, tuple[Any, ...]], Any]:
    """Return the function that makes a row of an encoded key and values. `made` returns the text of
    the row, for the names of its columns and the texts of their values: `shown`, behind the chosen
    key columns. Integers have their place in a key, and so has the text of a key of one column. All
    other keys are decoded."""
    chosen = [(keys[at], f"k{at}") for at in places]
    names = [*[it.name for it, _ in chosen], *[it.name for it in values]]
    given = ["".join([f"v{at}, " for at in range(len(values))]) + "= values"] if values else []
    lines: list[str] = []
    unpack: Callable[..., Any] = no_row
    if places and all(it.key_type in _NUMBERS for it in keys):
        fields = struct.Struct(">" + "BQ" * len(keys))
        unpack = fields.unpack
        tests = [f"t{at} == {TAGS[it.key_type]}" for at, it in enumerate(keys)]
        row = made(names, [*[_shown_key(*it) for it in chosen], *shown])
        lines = [
            f"        if len(key) == {fields.size}:",
            f"            {''.join([f't{at}, k{at}, ' for at in range(len(keys))])}= unpack(key)",
            f"            if {' and '.join(tests)}:",
            *[f"                {it}" for it in given],
            f"                return {row}",
        ]
    elif places and len(keys) == 1 and keys[0].key_type in TEXTS:
        row = made(names, [*[_shown_text(*it) for it in chosen], *shown])
        lines = [
            '        if key[:1] == b"\\x10" and key[-2:] == b"\\x00\\x01":',
            "            k0 = key[1:-2]",
            f"            if {_TEXT_TESTS[keys[0].type]}:",
            *[f"                {it}" for it in given],
            f"                return {row}",
        ]
    if places:
        lines.append(f"        {''.join([f'k{at}, ' for at in range(len(keys))])}= decode(key)")
    row = made(names, [*[_loaded(*it) for it in chosen], *shown])
    bind = _compile(
        "bind",
        [
            "def bind(unpack, decode):",
            "    def read(key, values):",
            *lines,
            *[f"        {it}" for it in given],
            f"        return {row}",
            "    return read",
        ],
        [*keys, *values],
    )
    read: Callable[[Key, tuple[Any, ...]], Any]
    read = bind(unpack, partial(decode_key, types=[it.key_type for it in keys]))
    return read


def _shown_text(column: ColumnCode, name: str) -> str:
    text = name + ('.decode("ascii")' if column.type == "utf8" else _UNESCAPED)
    return text if column.logical is None else code_of(column.logical).load.format(text)


def _shown_key(column: ColumnCode, name: str) -> str:
    number = _NUMBERS[column.key_type].format(name)
    return number if column.logical is None else code_of(column.logical).load.format(number)


def _is_plain_key(keys: Sequence[ColumnCode]) -> bool:
    names = [""] * len(keys)
    return all(
        it.key_type in _KEY_PARTS and (it.computed is None or it.computed.code(names) is not None)
        for it in keys
    )


def _key_text(keys: Sequence[ColumnCode]) -> str:
    parts = []
    for at, it in enumerate(keys):
        stored = f"k{at}" if it.logical is None else code_of(it.logical).store.format(f"k{at}")
        if it.logical is not None and stored != f"k{at}":
            stored = f"({stored})"
        parts.append(_KEY_PARTS[it.key_type].format(stored))
    return " + ".join(parts)
