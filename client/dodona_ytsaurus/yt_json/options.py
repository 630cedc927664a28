"""The options that a client may give for JSON, in its format's attributes.

Owns: the options and their defaults, which are YTsaurus's. Imports nothing of Dodona.
"""

from typing import Final

import msgspec


class JsonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options, named as in YTsaurus. All other attributes of a format may be ignored."""

    encode_utf8: bool = True
    """Whether strings are mangled: `é` is written as `Ã©`. Mangled strings may be any bytes; others
    must be UTF-8."""
    stringify_nan_and_infinity: bool = False
    """Whether to write "nan", "inf" and "-inf" where a double has no form in JSON. Otherwise such a
    double is an error. A reader takes these texts for a double only if the `$type` says so."""


DEFAULT_OPTIONS: Final = JsonOptions()
