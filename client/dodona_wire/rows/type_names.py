"""Names of nested types, such as `struct<id:int64,tags:list<optional<utf8>>>`. Pure.

Owns: their grammar, and how a name of a field is written. A name of letters, digits and underscores
stands as it is, unless a digit comes first. Any other name has double quotes, in which two of them
stand for one, as in SQL. Spaces between words have no meaning. `logical_types` says which types
there are.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from dodona_wire.errors import SchemaViolation
from dodona_wire.shown import shown

TYPE_LENGTH_MAX: Final = 4096
"""Characters of the name of a type."""
TYPE_DEPTH_MAX: Final = 16
"""How deep lists, structs and dicts may be nested."""
FIELD_LENGTH_MAX: Final = 256
"""Characters of the name of a field."""
LIST: Final = "list"
STRUCT: Final = "struct"
DICT: Final = "dict"
OPTIONAL: Final = "optional"
NESTED: Final = (LIST, STRUCT, DICT)

_TOKEN: Final = re.compile(r'\s*("(?:[^"]|"")*"|[^\W\d]\w*|[0-9]+|[<>(),:])')
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_END: Final = ""


class TypeName(NamedTuple):
    """A name in its parts. A type that is not nested has its whole name in `word`."""

    word: str
    parts: tuple[tuple[str, "TypeName"], ...] = ()
    """The types inside. Those of a struct have the names of its fields."""


def field_word(name: str) -> str:
    """Return the name of a field as it stands in the name of a type."""
    return name if _BARE.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def parse_type_name(text: str) -> TypeName:
    """Return the parts of a name. Raises SchemaViolation, which says where the name is wrong."""
    if len(text) > TYPE_LENGTH_MAX:
        raise SchemaViolation(
            f"the name of a type has at most {TYPE_LENGTH_MAX} characters, not {len(text)}"
        )
    parser = _Parser(text)
    found = parser.type_name(0)
    if parser.word != _END:
        raise parser.refusal("nothing more")
    return found


class _Parser:
    """A reader of one name. `word` is the next word, and the empty text at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self._place = 0
        self.word = _END
        self._advance()

    def refusal(self, wanted: str) -> SchemaViolation:
        """Return the error for the next word."""
        found = shown(self.word) if self.word else "its end"
        return SchemaViolation(
            f"the name of a type needs {wanted} at character {self._place + 1}, not {found}: "
            f"{shown(self._text)}"
        )

    def _advance(self) -> None:
        rest = self._text[self._next :]
        self._place = self._next + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.word = _END
            return
        found = _TOKEN.match(self._text, self._next)
        if found is None:
            self.word = self._text[self._place]
            raise self.refusal("a word")
        self.word, self._next = found[1], found.end()

    def _take(self, word: str) -> None:
        if self.word != word:
            raise self.refusal(shown(word))
        self._advance()

    def type_name(self, depth: int) -> TypeName:
        word = self.word
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise self.refusal("a type")
        if depth > TYPE_DEPTH_MAX:
            raise SchemaViolation(f"types are nested at most {TYPE_DEPTH_MAX} deep")
        self._advance()
        if self.word == "(":
            return TypeName(word + self._parameters())
        if self.word != "<":
            return TypeName(word)
        self._advance()
        below = depth if word == OPTIONAL else depth + 1
        read = self._field if word == STRUCT else self._part
        parts = self._listed(lambda: read(below))
        self._take(">")
        return TypeName(word, tuple(parts))

    def _listed(self, read: Callable[[], tuple[str, TypeName]]) -> list[tuple[str, TypeName]]:
        parts = [read()]
        while self.word == ",":
            self._advance()
            parts.append(read())
        return parts

    def _part(self, depth: int) -> tuple[str, TypeName]:
        return "", self.type_name(depth)

    def _field(self, depth: int) -> tuple[str, TypeName]:
        word = self.word
        if word.startswith('"'):
            name = word[1:-1].replace('""', '"')
        elif word[:1].isalpha() or word[:1] == "_":
            name = word
        else:
            raise self.refusal("the name of a field, such as price,")
        self._advance()
        self._take(":")
        return name, self.type_name(depth)

    def _parameters(self) -> str:
        """Return the numbers of a decimal, in brackets."""
        words = []
        while self.word not in (")", _END):
            words.append(self.word)
            self._advance()
        self._take(")")
        return "".join([*words, ")"])
