"""What a client may say about JSON in its format's attributes.

Owns: the options and their defaults, which are YTsaurus's. Imports nothing of Dodona.
"""

from typing import Final

import msgspec


class JsonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Named as in YTsaurus. All other attributes of a format may be ignored."""

    encode_utf8: bool = True
    """Whether strings are mangled: `é` is written as `Ã©`. Any bytes can be written so; without it
    only those that are UTF-8."""
    stringify_nan_and_infinity: bool = False
    """Whether to write "nan", "inf" and "-inf" where a double has no form in JSON, which is an
    error else. What is read is never taken for one, unless its `$type` says so."""


DEFAULT_OPTIONS: Final = JsonOptions()
