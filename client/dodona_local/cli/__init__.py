"""Run the command line, `dodona`: one module for each topic, each with a small typer application.

The module of a command imports only typer and modules beside it. Each command imports all else
inside its function. So `--help` and completion are fast, and a missing extra is an error that names
it. Commands raise errors, and `running` turns these into one sentence and an exit code.
"""

from dodona_local.cli.application import application, main

__all__ = ["application", "main"]
