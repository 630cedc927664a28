"""The list of all commands and their options, made of the application that runs them.

Owns: what a command's section says. Meanings are those that `--help` prints.
"""

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

import typer.main

from documents.tables import bounds, choices, table
from dodona_local.cli import application

WORDS: Final = {int: "a number", float: "a number", str: "text", Path: "a path"}


def commands_text() -> str:
    """A section for each command, in the order of `--help`."""
    root: Any = typer.main.get_command(application)
    before = table(("before a command", "takes", "default", "meaning"), _rows(root))
    return "\n\n".join([before, *_sections(root, "dodona")])


def _sections(group: Any, before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        words = f"{before} {name}"
        if hasattr(command, "commands"):
            yield from _sections(command, words)
        elif not command.hidden:
            yield _section(words, command)


def _section(words: str, command: Any) -> str:
    arguments = [it for it in command.params if it.param_type_name == "argument"]
    usage = " ".join([words, *(_usage(it) for it in arguments)])
    help_text = " ".join((command.help or "").split())
    parts = [f"## `{usage}`", help_text]
    if named := [it for it in arguments if getattr(it, "help", None)]:
        parts.append(
            table(("argument", "meaning"), [(f"`{_metavar(it)}`", it.help) for it in named])
        )
    if rows := list(_rows(command)):
        parts.append(table(("option", "takes", "default", "meaning"), rows))
    return "\n\n".join(parts)


def _usage(argument: Any) -> str:
    name = _metavar(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name).strip("{}[]").upper()


def _rows(command: Any) -> Iterator[tuple[str, ...]]:
    for it in command.params:
        if it.param_type_name == "option" and not getattr(it, "hidden", False):
            names = ", ".join(f"`{name}`" for name in [*it.opts, *it.secondary_opts])
            yield names, _takes(it), _default(it), it.help or ""


def _takes(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if option.is_flag:
        return ""
    kind = get_args(kind)[0] if get_args(kind) else kind
    if issubclass(kind, enum.Enum):
        return choices(it.value for it in kind)
    words = ("" if option.metavar is None else f"`{_metavar(option)}`") or WORDS[kind]
    often = ["again and again"] if option.multiple else []
    return ", ".join([words, *bounds(option.min, option.max), *often])


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.is_flag or option.default in (None, (), []) or callable(option.default):
        return ""
    value = f"`{getattr(option.default, 'value', option.default)}`"
    return f"`{option.envvar}`, else {value}" if option.envvar else value
