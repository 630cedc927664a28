"""The command line, `dodona`: one module for each topic, each with a small typer application.

A command's module imports typer and what is here, and inside its commands all else: `--help` and
completion are quick, and a missing extra is named instead of shown as a traceback. Commands raise;
`running` turns errors into one sentence and an exit code.
"""

from dodona_local.cli.application import application, main

__all__ = ["application", "main"]
