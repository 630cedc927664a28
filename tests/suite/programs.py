"""Programs that tests start.

Owns: `program`. `subprocess.Popen` by itself waits at the end of its block, also if the block
failed or took too long: for ever, if the program waits for the test. Must not import: any product.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def program(words: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[Any]"]:
    """As `subprocess.Popen`. If the block fails, the program is killed."""
    with subprocess.Popen(words, **options) as running:
        try:
            yield running
        except BaseException:
            running.kill()
            raise
