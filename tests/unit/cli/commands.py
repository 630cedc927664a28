"""Running commands as people do, on an embedded database, without a process for each.

Owns: `Commands`, and what `dodona insert` is fed with.
"""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from dodona_local.cli import application

ACCOUNTS = "id:int64:key,name:utf8,balance:int64"
TABLE = "//bank/accounts"


class Commands:
    """`dodona WORDS --data-dir FOLDER`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: object, stdin: str | bytes = "", code: int = 0) -> Result:
        """What is wrong with the exit code is told with all that was said."""
        given = [*map(str, words)]
        end = given.index("--") if "--" in given else len(given)
        given[end:end] = ["--data-dir", str(self.folder)]
        done = CliRunner().invoke(application, given, input=stdin)
        assert done.exit_code == code, (done.exit_code, done.output, done.exception)
        return done

    def elsewhere(self, *words: object) -> str:
        """All of standard output of a command that looks into no database."""
        done = CliRunner().invoke(application, [*map(str, words)])
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    def said(self, *words: object, stdin: str | bytes = "") -> str:
        """All of standard output; nothing else is said."""
        done = self.run(*words, stdin=stdin)
        assert done.stderr == ""
        return done.stdout

    def refused(self, *words: object, stdin: str | bytes = "", code: int = 1) -> str:
        """The one sentence of an error."""
        done = self.run(*words, stdin=stdin, code=code)
        assert done.stdout == ""
        assert done.stderr.startswith("dodona: ")
        assert done.stderr.count("\n") == 1
        return done.stderr

    def rows(self, path: str = TABLE, *words: object) -> list[Any]:
        """What `select` finds."""
        lines = self.said("select", path, "--format", "json", *words).splitlines()
        return [json.loads(line) for line in lines]

    def value(self, *words: object) -> Any:
        """One JSON value."""
        return json.loads(self.said(*words, "--format", "json"))


def lines_of(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def account(number: int, **others: Any) -> dict[str, Any]:
    return {"id": number, "name": f"n{number}", "balance": 100, **others}
