"""The console in a real browser, over a real cluster that is at work while nodes stop and die."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import dodona
from dodona.errors import DodonaError
from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST
from integration.gateway.browser import NARROW, WIDE, Watched, find_browser, launched
from integration.gateway.busy import ACCOUNTS, MARKUP, ORDERS, QUOTES, STOCK, Writer, furnish

PROGRAM = find_browser()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.skipif(PROGRAM is None, reason="there is no chromium: apt-get install chromium"),
]
expect.set_options(timeout=20_000)
PAGES = ("", "/transactions", "/tables", f"/table?path={ORDERS}", f"/rows?path={ORDERS}", "/query")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes and a gateway that asks for tokens; somebody writes all the time."""
    folder: Path = tmp_path_factory.mktemp("console")
    with LocalCluster(folder / "data", gateway_count=1, back_off_s_max=0.5) as running:
        with dodona.connect(running.master_url) as db:
            furnish(db)
        with Writer(running.master_url):
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    with launched(PROGRAM) as running:
        yield running


@pytest.fixture
def stranger(cluster: LocalCluster, browser: Browser) -> Iterator[Watched]:
    """A browser that was never here, and has nothing to complain of in the end."""
    context = browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
    watched = Watched(context.new_page(), cluster.gateway_urls[0])
    yield watched
    context.close()
    assert watched.complaints == []


@pytest.fixture
def guest(stranger: Watched, cluster: LocalCluster) -> Watched:
    """The same with the cookie of the first token."""
    add_cookie(stranger, cluster.admin_token)
    return stranger


def add_cookie(watched: Watched, token: str) -> None:
    """As the door would have set it."""
    cookie = {"name": "dodona_token", "value": token, "domain": HOST, "path": "/console"}
    watched.page.context.add_cookies([cookie])  # type: ignore[list-item]


# ---- the door


def test_a_token_lets_in_and_is_forgotten_at_the_logout(
    stranger: Watched, cluster: LocalCluster
) -> None:
    page = stranger.open("/tables")
    assert page.url.endswith("/console/login")
    assert page.get_by_label("Token").get_attribute("type") == "password"
    page.get_by_label("Token").fill("dodona_no")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").last).to_contain_text("this is no token")
    forget_status_lines(stranger)
    page.get_by_label("Token").fill(cluster.admin_token)
    page.get_by_label("Token").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cluster")
    expect(page.locator(".who")).to_contain_text("first")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/console/login")
    assert page.context.cookies() == []
    assert stranger.open().url.endswith("/console/login")


def forget_status_lines(watched: Watched) -> None:
    """The browser notes each answer that is a refusal; a refusal that was asked for is no fault."""
    watched.complaints = [it for it in watched.complaints if "the server responded" not in it]


def test_whose_cookie_is_good_no_more_is_sent_to_the_door(
    stranger: Watched, cluster: LocalCluster
) -> None:
    add_cookie(stranger, cluster.admin_token[:-4] + "AAAA")
    page = stranger.open("/query")
    assert page.url.endswith("/console/login")
    expect(page.get_by_role("alert").last).to_contain_text("token")
    assert page.context.cookies() == []


def test_a_page_that_is_open_goes_to_the_door_when_its_token_ends(guest: Watched) -> None:
    page = guest.open()
    page.context.clear_cookies()
    page.wait_for_url("**/console/login")
    forget_status_lines(guest)


# ---- the map


def test_the_map_shows_what_is_where_and_moves(guest: Watched, cluster: LocalCluster) -> None:
    page = guest.open()
    for cell in (0, 1):
        part = page.locator(f"#cell-{cell}")
        expect(part.locator("header")).to_contain_text(cluster.node_urls[cell])
        expect(part.locator("header")).to_contain_text("ready")
        accounts = part.locator("tr", has=page.get_by_role("link", name=ACCOUNTS))
        expect(accounts.locator("td").nth(1)).to_have_text("100")
        assert accounts.locator("i.mounted").count() == 2
    oracle = page.locator("#oracle")
    expect(oracle).to_contain_text(cluster.master_url)
    expect(oracle).to_contain_text(cluster.proxy_url)
    details = page.locator(".chart details").first
    details.locator("summary").click()
    before = guest.text("time")
    page.wait_for_function(
        "before => document.querySelector('time').innerText !== before", arg=before
    )
    for chart in ("timestamps", "commits", "conflicts"):
        shown = page.locator(f".chart.{chart}")
        page.wait_for_function(
            "name => parseFloat(document.querySelector(`.chart.${name} b`).innerText) > 0",
            arg=chart,
        )
        assert shown.locator("path.line").get_attribute("d") != ""
        assert re.search(r"per second: .* now", shown.locator("svg desc").text_content() or "")
    assert details.get_attribute("open") is not None, "an update closes what was opened"
    expect(details.locator("tbody tr").first).to_contain_text("this minute")


# ---- tables and rows


def test_from_the_tree_to_a_table(guest: Watched) -> None:
    page = guest.open("/tables")
    page.get_by_role("link", name="bank/").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("//bank")
    page.get_by_role("link", name="accounts").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("//bank/accounts")
    tablets = page.locator("#tablets tbody tr")
    assert tablets.count() == 4
    expect(tablets.nth(2)).to_contain_text("[100]")
    expect(tablets.nth(2)).to_contain_text("mounted")
    expect(page.locator(".attributes")).to_contain_text("@tablet_count")
    expect(page.locator("main")).to_contain_text("balance")
    page.get_by_role("link", name="//", exact=True).click()
    expect(page.get_by_role("link", name="shop/")).to_be_visible()


def test_rows_of_then_are_not_those_of_now(guest: Watched, cluster: LocalCluster) -> None:
    with dodona.connect(cluster.master_url) as db:
        then = db.generate_timestamp()
        db.insert_rows(ORDERS, [{"id": 1, "customer": "now", "total": 1.5}])
    page = guest.open(f"/rows?path={ORDERS}")
    second = page.locator("#rows tbody tr").nth(1)
    expect(second.locator("td")).to_have_text(["1", "now", "1.5", "null", "null"])
    page.get_by_label("Timestamp, 64 bits").fill(str(then))
    assert page.locator("input[name=as_of][value=timestamp]").is_checked()
    page.get_by_role("button", name="Show rows").click()
    expect(page.locator("main")).to_contain_text(f"as of timestamp {then}")
    expect(second.locator("td")).to_have_text(
        ["1", "bob", "7.25", "false", '{"lines":1,"gift":false}']
    )
    page.get_by_role("link", name="Next rows").click()
    expect(page.locator("#rows tbody tr").first.locator("td").first).to_have_text("50")
    expect(page.locator("main")).to_contain_text(f"as of timestamp {then}")
    page.get_by_label("from", exact=True).fill("170")
    page.get_by_role("textbox", name="Time, UTC").fill("2001-02-03T04:05:06")
    page.get_by_role("button", name="Show rows").click()
    expect(page.locator(".empty")).to_contain_text("There is no row with such a key")
    expect(page.locator(".empty")).to_contain_text("2001-02-03 04:05:06")


def test_what_looks_like_markup_is_text(guest: Watched) -> None:
    page = guest.open(f"/rows?path={STOCK}")
    rows = page.locator("#rows tbody tr")
    expect(rows.nth(1).locator("td").first).to_have_text(MARKUP)
    expect(rows.nth(1).locator("td").last).to_have_text(QUOTES)
    expect(rows.nth(0).locator("td").first).to_contain_text("00 01 fe binary, 3 bytes")
    expect(rows.nth(0).locator("td").last).to_have_text("a\\tb\\nc \\u202e d")
    expect(rows.nth(2).locator("td").last).to_contain_text("cut, 5,000 characters")
    assert page.locator("main script, main b").count() == 0
    page.get_by_label("from", exact=True).fill(f'["{MARKUP}"]')
    page.get_by_role("button", name="Show rows").click()
    expect(rows.first.locator("td").first).to_have_text(MARKUP)
    assert page.get_by_label("from", exact=True).input_value() == f'["{MARKUP}"]'
    guest.open(f"/tables?path={MARKUP}")
    expect(page.get_by_role("alert").last).to_contain_text(MARKUP)
    guest.open(f"/query?table={MARKUP}")
    assert MARKUP in page.get_by_label("The query").input_value()
    assert page.locator("main script").count() == 0
    forget_status_lines(guest)


# ---- queries


def test_a_query_is_answered_in_place_as_of_a_timestamp(
    guest: Watched, cluster: LocalCluster
) -> None:
    page = guest.open("/query")
    result = page.locator("#result")
    text = MARKUP.replace("'", "''")
    query = f"select sum(balance) as total, '{text}' as x from [{ACCOUNTS}]"
    page.get_by_label("The query").fill(query)
    page.get_by_label("The query").press("Control+Enter")
    expect(result.locator("tbody td").first).to_have_text("200000")
    expect(result.locator("tbody td").last).to_have_text(MARKUP)
    expect(result).to_contain_text("1 row in")
    with dodona.connect(cluster.master_url) as db:
        before_all = db.generate_timestamp()
        db.insert_rows(ORDERS, [{"id": 9_999, "total": 0.0}])
    query = f"select count(*) as n from [{ORDERS}] where id = 9999"
    page.get_by_label("The query").fill(query)
    page.get_by_role("button", name="Run").click()
    expect(result.locator("tbody td").first).to_have_text("1")
    page.get_by_label("Timestamp, 64 bits").fill(str(before_all))
    page.get_by_role("button", name="Run").click()
    expect(result.locator("tbody td")).to_have_text("0")
    expect(result).to_contain_text(str(before_all))


def test_an_error_is_shown_with_its_place(guest: Watched) -> None:
    page = guest.open("/query")
    page.get_by_label("YTsaurus’s query language").check()
    page.get_by_label("The query").fill(f"id,\nsumx(total) from [{ORDERS}]")
    page.get_by_role("button", name="Run").click()
    error = page.locator("#result .error")
    expect(error).to_contain_text("there is no function sumx")
    expect(error).to_contain_text("Line 2, character 1")
    expect(error).to_contain_text("invalid_request")
    page.get_by_label("The query").fill(f"id, total from [{ORDERS}] where id between 1 and 2")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result tbody tr")).to_have_count(2)
    page.get_by_label("SQL", exact=True).check()
    page.get_by_label("The query").fill("drop table x")
    page.get_by_role("button", name="Run").click()
    expect(error).to_contain_text("a query is one SELECT statement")


# ---- what stops and dies


def test_what_is_in_doubt_is_shown_and_so_is_the_recovery_that_takes_it_over(
    guest: Watched, cluster: LocalCluster
) -> None:
    commit = _Commit(cluster)
    try:
        cluster.pause("node 1")
        commit.start()
        page = guest.open("/transactions")
        line = page.locator("#in-doubt tbody tr", has_text=str(commit.transaction))
        expect(line).to_be_visible()
        expect(line).to_contain_text("no answer")
        expect(page.locator("#live .notice.bad")).to_contain_text("cell 1")
        began_s = time.monotonic()
        guest.open()
        assert time.monotonic() - began_s < 5, "a silent node stalls the page"
        expect(page.locator("#cell-1 header")).to_contain_text("no answer")
        expect(page.locator("#cell-1")).to_contain_text("As it told last")
        expect(page.locator(".readings .warn dd")).not_to_have_text("0")
        cluster.kill("node 0")
        cluster.wait_until_ready("node 0", start_count=2)
    finally:
        cluster.resume("node 1")
    page = guest.open("/recoveries")
    crash = page.locator("#starts tr.crash").first
    expect(crash).to_contain_text("cell 0")
    expect(crash).to_contain_text("after a crash")
    expect(crash.locator("summary")).to_have_text(re.compile(r"committed|aborted"))
    crash.locator("summary").click()
    decided = crash.locator(".inner tr", has_text=str(commit.transaction))
    expect(decided).to_contain_text(re.compile("prepared.*(committed|aborted)"))
    expect(crash).to_contain_text("runs")
    expect(page.locator("#starts tr", has_text="crashed")).to_contain_text("cell 0")
    guest.open("/transactions")
    expect(page.locator("main")).not_to_contain_text(str(commit.transaction))
    commit.end()


class _Commit:
    """One of two cells, which is on its way while one of them stands still."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._db = dodona.connect(cluster.master_url)
        begun = self._db.begin()
        assert begun.start_timestamp is not None
        self.transaction = begun.start_timestamp
        begun.insert_rows(ORDERS, [{"id": 5_000 - it * 10_000, "total": 1.0} for it in (0, 1)])
        self._begun = begun
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._db.close()

    def _run(self) -> None:
        with suppress(DodonaError):  # nobody knows yet what becomes of it
            self._begun.commit()


# ---- what every page owes


@pytest.mark.parametrize("path", [*PAGES, "/recoveries"])
def test_every_page_is_usable_by_keyboard_reader_and_telephone(guest: Watched, path: str) -> None:
    page = guest.open(path)
    assert page.locator("h1").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    levels = page.eval_on_selector_all("h1,h2,h3", "them => them.map(it => +it.tagName[1])")
    assert all(after - before <= 1 for before, after in pairwise(levels))
    nameless = page.eval_on_selector_all(
        "input:not([type=hidden]),textarea,button,a,svg[role=img]",
        """them => them.filter(it => !(it.getAttribute("aria-label") || it.labels?.length
            || it.textContent.trim() || it.querySelector("title"))).map(it => it.outerHTML)""",
    )
    assert nameless == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the contents"
    expect(page.locator("nav [aria-current=page]").first).to_be_visible()
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert colours_are_far_apart(page)


def colours_are_far_apart(page: Page) -> bool:
    """Whether text and paper differ by 4.5 to 1, for plain and for soft words."""
    ratio = """selector => {
      const light = (it) => it.match(/[0-9.]+/g).slice(0, 3).map(Number).map(c => c / 255)
        .map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
      const [a, b] = [getComputedStyle(document.querySelector(selector)).color,
        getComputedStyle(document.documentElement).backgroundColor].map(light);
      return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    }"""
    return all(page.evaluate(ratio, it) >= 4.5 for it in ("body", "footer", "main a, nav a"))


def test_pages_work_without_their_script(browser: Browser, cluster: LocalCluster) -> None:
    context: BrowserContext = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{cluster.gateway_urls[0]}/console")
    page.get_by_label("Token").fill(cluster.admin_token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cluster")
    page.goto(f"{cluster.gateway_urls[0]}/console/query")
    page.get_by_label("The query").fill("select 6 * 7 as answer")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result tbody td")).to_have_text("42")
    context.close()
