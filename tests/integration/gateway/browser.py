"""A browser that is the system's, and somebody who watches what goes wrong in it.

Owns: finding it (none is ever downloaded), and `Watched`: a page whose errors, violations of its
policy, dialogs and requests to other places are kept.
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
