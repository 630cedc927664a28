"""The table of values in the chart's README, made of the schema and of the defaults.

Owns: its form, and where it stands. Every value is a row: its name, what it is by default, and what
the schema says of it. Pure.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

BEGIN: Final = "<!-- values: made by python -m helm_chart -->"
END: Final = "<!-- end of values -->"


def values_table(schema: dict[str, Any], defaults: dict[str, Any]) -> str:
    """Markdown."""
    lines = ["| value | default | what it is |", "|---|---|---|"]
    for name, described in leaves(schema, schema):
        default = json.dumps(default_of(name, described, defaults), ensure_ascii=False)
        cells = f"`{name}`", f"`{default}`", _text(described)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def leaves(
    schema: dict[str, Any], described: dict[str, Any], prefix: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and descriptions of all values that have no named parts."""
    for name, inner in described["properties"].items():
        inner = _resolved(schema, inner)
        if "properties" in inner:
            yield from leaves(schema, inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _resolved(schema: dict[str, Any], described: dict[str, Any]) -> dict[str, Any]:
    """With what it refers to; what it says itself goes first."""
    if "$ref" not in described:
        return described
    target = schema["definitions"][described["$ref"].rpartition("/")[2]]
    return {**target, **{key: value for key, value in described.items() if key != "$ref"}}


def default_of(name: str, described: dict[str, Any], defaults: dict[str, Any]) -> Any:
    """As values.yaml has it; of a setting that is not there the server's own."""
    found: Any = defaults
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return described.get("default")
        found = found[part]
    return found


def _text(described: dict[str, Any]) -> str:
    text: str = described["description"]
    if not all(it in text for it in described.get("enum", [])):
        text += f" ({', '.join(described['enum'])})"
    return text.replace("|", "\\|")


def with_table(readme: str, table: str) -> str:
    """The README with this table in its place. Raises ValueError if it has no place for one."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README lacks the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"
