"""Hooks for schemathesis: its callers are patient.

Owns: the time that a call is given. Whoever waits for a millisecond is told 503, which is right,
and which schemathesis takes for a server that broke. Times that are not allowed stay as they are.
"""

from typing import Any, Final

import schemathesis

ALLOWED_MS: Final = range(1, 600_001)
PATIENT_MS: Final = 60_000


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    for given in (case.body, case.query):
        if isinstance(given, dict) and is_allowed(given.get("timeout_ms")):
            given["timeout_ms"] = max(int(given["timeout_ms"]), PATIENT_MS)


def is_allowed(wait_ms: object) -> bool:
    """Whether it is a time that the document has, also as a query has it: as text."""
    if isinstance(wait_ms, str) and wait_ms.isascii() and wait_ms.isdecimal():
        wait_ms = int(wait_ms[:7])
    return type(wait_ms) is int and wait_ms in ALLOWED_MS
