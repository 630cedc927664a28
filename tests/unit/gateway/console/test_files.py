"""What goes with the program: templates and files are in the wheel, and htmx is the one we mean."""

import hashlib
import re
from pathlib import Path
from typing import Final

import pytest
from hatchling.builders.wheel import WheelBuilder

from dodona_gateway.core.console.visit import STATIC_FILES
from dodona_gateway.shell.console.rendering import (
    HEADERS,
    PACKAGE,
    POLICY,
    serve_static,
    static_url,
)

ROOT: Final = Path(__file__).resolve().parents[4]
FOLDER: Final = ROOT / "client" / PACKAGE.replace(".", "/")
HTMX_SHA256: Final = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"
"""Of `dist/htmx.min.js` of htmx.org 4.0.1, as its registry has it."""
WHAT_RUNS: Final = re.compile(
    r"<style|\sstyle=|\son[a-z]+=|<script(?! src)|javascript:|hx-on|hx-vals|https?://|\[[^\]]*\]\"",
)
"""In a template: what the policy forbids, what would need `eval`, and what leaves the origin."""


def test_htmx_is_the_one_we_mean() -> None:
    content = (FOLDER / "static" / "htmx-4.0.1.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == HTMX_SHA256
    assert "Zero-Clause BSD" in (FOLDER / "static" / "htmx-4.0.1.LICENSE.txt").read_text()


def test_the_wheel_contains_all_templates_and_static_files() -> None:
    builder = WheelBuilder(str(ROOT))
    included = {it.distribution_path for it in builder.recurse_included_files()}
    wanted = [it for name in ("templates", "static") for it in (FOLDER / name).rglob("*.*")]
    assert len(wanted) > 15
    for path in wanted:
        assert str(path.relative_to(ROOT / "client")) in included


def test_there_is_no_other_file_than_those_that_are_served() -> None:
    assert sorted(it.name for it in (FOLDER / "static").iterdir()) == sorted(STATIC_FILES)


@pytest.mark.parametrize("name", STATIC_FILES)
def test_a_static_file_has_an_address_with_the_digest_of_its_content(name: str) -> None:
    answer = serve_static(name)
    assert answer.body == (FOLDER / "static" / name).read_bytes()
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"].startswith("public")
    digest = hashlib.sha256(answer.body).hexdigest()
    assert static_url(name) == f"/console/static/{name}?{digest[:12]}"


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "templates").rglob("*.html")), ids=lambda path: path.name
)
def test_a_template_needs_nothing_that_the_policy_forbids(path: Path) -> None:
    text = re.sub(r"{%.*?%}|{{.*?}}", "", path.read_text(), flags=re.DOTALL)
    assert WHAT_RUNS.findall(text) == []
    assert "|safe" not in path.read_text().replace(" ", "")


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert POLICY.startswith("default-src 'none'; ")
    assert {"frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} <= {
        *POLICY.split("; ")
    }
    assert HEADERS["cache-control"] == "no-store"


def test_the_picture_in_the_readme_is_there_and_modest() -> None:
    content = (ROOT / "docs" / "console.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert len(content) < 150_000
    assert "docs/console.png" in (ROOT / "README.md").read_text()
