"""A browser that is the system's, and somebody who watches what goes wrong in it.

Owns: finding it (none is ever downloaded), and `Watched`: a page whose errors, violations of its
policy, dialogs and requests to other places are kept; and what is hard to read on a page.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE: Final = {"width": 1440, "height": 900}
NARROW: Final = {"width": 400, "height": 800}
_UNLIKE: Final = """() => {
  const numbers = (it) => it.match(/[0-9.]+/g).map(Number);
  const light = (it) => numbers(it).slice(0, 3).map(c => c / 255)
    .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const paper = (it) => {
    const colour = getComputedStyle(it).backgroundColor;
    return (numbers(colour)[3] ?? 1) > 0 || !it.parentElement ? colour : paper(it.parentElement);
  };
  const faded = (it) => it === null ? 1 : getComputedStyle(it).opacity * faded(it.parentElement);
  const near = (style, it, opacity) => {
    const [a, b] = [light(style.color), light(paper(it))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    return ratio < 4.5 || opacity < 1;
  };
  const worded = [...document.querySelectorAll("body *")].filter(it => it.checkVisibility()
    && !it.closest("svg") && [...it.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const held = [...document.querySelectorAll("[placeholder]")];
  return [
    ...worded.filter(it => near(getComputedStyle(it), it, faded(it))),
    ...held.filter(it => {
      const style = getComputedStyle(it, "::placeholder");
      return near(style, it, style.opacity);
    }),
  ].map(it => it.outerHTML.slice(0, 200));
}"""


def find_browser() -> Path | None:
    """The program, if the system has one."""
    found = [path for name in NAMES if (path := shutil.which(name)) is not None]
    return Path(found[0]) if found else None


@contextmanager
def launched(program: Path) -> Iterator[Browser]:
    """Without its sandbox, which root can't have."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(program), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """One page, at home at one gateway."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        """What a well-made page never causes."""
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("dialog", self._dismiss)
        page.on("request", self._check)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _dismiss(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _check(self, request: Any) -> None:
        if not request.url.startswith(f"{self.url}/"):
            self.complaints.append(f"request: {request.url}")

    def open(self, path: str = "") -> Page:
        """A page of the console, once its script is at work."""
        self.page.goto(f"{self.url}/console{path}")
        self.page.wait_for_function("window.htmx !== undefined")
        return self.page

    def text(self, selector: str) -> str:
        """What is seen of the first of these."""
        return self.page.locator(selector).first.inner_text()


def unlike_paper(page: Page) -> list[str]:
    """Elements whose words, or what holds their place, are hard to read: they differ from their
    paper by less than 4.5 to 1."""
    found: list[str] = page.evaluate(_UNLIKE)
    return found
