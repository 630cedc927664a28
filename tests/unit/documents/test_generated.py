"""What pages say of the code is made of it, and nothing public is left out."""

import re

import pytest

import dodona
from documents.api_page import CLASSES, ELSEWHERE, FUNCTIONS, VALUES
from documents.blocks import DOCS
from documents.generated import GENERATED
from documents.members import methods_of, signature_of
from documents.settings_page import PROCESSES
from documents.tables import bounds, choices, table
from dodona.errors import ERRORS_BY_KIND


@pytest.mark.parametrize("page", GENERATED)
def test_a_page_is_the_code_s(page: str) -> None:
    section, make = GENERATED[page]
    text = (DOCS / page).read_text("utf-8")
    _, _, rest = text.partition(f"<!-- {section}: begin -->\n\n")
    written, _, _ = rest.partition(f"\n\n<!-- {section}: end -->")
    assert written == make(), "make docs"


def test_every_public_name_is_on_a_page() -> None:
    text = (DOCS / "reference" / "api.md").read_text("utf-8")
    shown = {it.__name__ for it in (*CLASSES, *VALUES)} | set(FUNCTIONS) | {"Changes"}
    errors = {it.__name__ for it in ERRORS_BY_KIND.values()}
    for name in dodona.__all__:
        assert name in shown | errors or f"`{name}`" in text, name
    for module, things in ELSEWHERE.items():
        assert f"## {module}\n" in text
        assert things


def test_every_public_call_has_a_docstring_and_is_on_the_page() -> None:
    text = (DOCS / "reference" / "api.md").read_text("utf-8")
    for kind in CLASSES:
        for member in methods_of(kind, frozenset()):
            assert member.doc, (kind, member)
            assert f"### `{kind.__name__}.{member.name}`\n\n```pyi\n{member.name}" in text


def test_each_setting_is_on_the_settings_page_with_its_variable() -> None:
    text = (DOCS / "reference" / "settings.md").read_text("utf-8")
    for command, kind in PROCESSES.items():
        (section,) = re.findall(rf"^## `{command}`\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
        for name, field in kind.model_fields.items():
            variable = f"{kind.model_config.get('env_prefix')}{name.upper()}"
            row = f"| `--{name.replace('_', '-')}` | `{variable}` |"
            assert section.count(row) == 1, row
            assert field.description


def test_signature_of_returns_the_signature_as_written() -> None:
    def function(path: str, *, lease_ms: int = dodona.MIN_TIMESTAMP, **options: object) -> None: ...

    assert signature_of(function) == (
        "function(path: str, *, lease_ms: int = dodona.MIN_TIMESTAMP, **options: object) -> None"
    )


def test_table_cells_contain_no_line_breaks_or_unescaped_bars() -> None:
    assert table(("a", "b"), [("x\ny", "1|2")]) == "| a | b |\n| --- | --- |\n| x y | 1\\|2 |"
    assert bounds(1, 2000) == ["1 to 2,000"]
    assert bounds(0, None) == ["at least 0"]
    assert bounds(None, 3) == ["at most 3"]
    assert choices([1, 2, 3]) == "`1`, `2` or `3`"
    assert choices([1]) == "`1`"
