"""The console in a real browser, over a real cluster that is at work while nodes stop and die."""

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

import dodona
from dodona_local.launcher import LocalCluster
from dodona_local.ports import HOST
from integration.gateway.browser import NARROW, WIDE, Watched, find_browser, launched, unlike_paper
from integration.gateway.busy import (
    ACCOUNTS,
    MARKUP,
    ORDERS,
    QUOTES,
    STOCK,
    Commit,
    Writer,
    furnish,
)

PROGRAM = find_browser()
NEEDS = pytest.mark.skipif(PROGRAM is None, reason="no chromium: apt-get install chromium")
pytestmark = [pytest.mark.integration, NEEDS]
expect.set_options(timeout=60_000)
PAGES = ("", "/transactions", "/tables", f"/table?path={ORDERS}", f"/rows?path={ORDERS}", "/query")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes and a gateway that asks for tokens."""
    folder: Path = tmp_path_factory.mktemp("console")
    with LocalCluster(folder / "data", gateway_count=1, back_off_s_max=0.5) as running:
        with dodona.connect(running.master_url) as db:
            furnish(db)
        yield running


@pytest.fixture(scope="module", autouse=True)
def writer(cluster: LocalCluster) -> Iterator[Writer]:
    with Writer(cluster.master_url) as running:
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
    """As the login page would have set it."""
    cookie = {"name": "dodona_token", "value": token, "domain": HOST, "path": "/console"}
    watched.page.context.add_cookies([cookie])  # type: ignore[list-item]


# ---- the login page


def test_a_token_lets_in_and_is_forgotten_at_the_logout(
    stranger: Watched, cluster: LocalCluster
) -> None:
    page = stranger.open("/tables")
    assert page.url.endswith("/console/login")
    assert page.get_by_label("Token").get_attribute("type") == "password"
    page.get_by_label("Token").fill("dodona_no")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").last).to_contain_text("The text is not a token")
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
    """The browser notes each answer that is a refusal, and each that does not come; one that was
    asked for is no fault."""
    asked_for = ("the server responded", "net::ERR_FAILED", "Failed to fetch")
    kept = [it for it in watched.complaints if not any(words in it for words in asked_for)]
    watched.complaints = kept


def test_a_browser_with_an_invalid_cookie_is_redirected_to_the_login_page(
    stranger: Watched, cluster: LocalCluster
) -> None:
    add_cookie(stranger, cluster.admin_token[:-4] + "AAAA")
    page = stranger.open("/query")
    assert page.url.endswith("/console/login")
    expect(page.get_by_role("alert").last).to_contain_text("token")
    assert page.context.cookies() == []


def test_an_open_page_goes_to_the_login_page_when_its_cookie_is_gone(guest: Watched) -> None:
    page = guest.open()
    page.context.clear_cookies()
    page.wait_for_url("**/console/login")
    forget_status_lines(guest)


# ---- the map


@pytest.mark.part("the console in a browser")
def test_the_map_shows_cells_tables_and_charts(guest: Watched, cluster: LocalCluster) -> None:
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
    assert page.locator(".readings .warn").count() == 0, "ordinary commits alarm somebody"


def test_the_map_counts_commits_and_conflicts(guest: Watched, writer: Writer) -> None:
    page = guest.open()
    counts = []
    for _ in range(2):
        with writer.at_rest() as done:
            next_look(page)
            next_look(page)
            shown = [counted(page, "commits"), counted(page, "conflicts")]
        counts.append([here - there for here, there in zip(shown, done, strict=True)])
        next_look(page)
    assert counts[0] == counts[1]


def next_look(page: Page) -> None:
    """Until the page shows a later one."""
    before = page.locator("#live time").first.inner_text()
    page.wait_for_function(
        "before => document.querySelector('#live time').innerText !== before", arg=before
    )


def counted(page: Page, what: str) -> int:
    """By all cells."""
    shown = page.locator(".gauges div", has=page.get_by_text(what, exact=True)).locator("dd")
    return sum(int(it.replace(",", "")) for it in shown.all_inner_texts())


def test_a_page_that_cannot_refresh_shows_the_reason(guest: Watched) -> None:
    page = guest.open()
    stale, live = page.locator("#stale"), page.locator("#live")
    expect(stale).to_be_hidden()
    page.route("**/parts/cluster", lambda route: route.fulfill(status=503, body="busy"))
    expect(stale).to_contain_text("The gateway can't show this now (status 503)")
    expect(live).to_have_class("still")
    assert unlike_paper(page) == [], "what stands still is to be read"
    page.unroute("**/parts/cluster")
    page.route("**/parts/cluster", lambda route: route.abort())
    expect(stale).to_contain_text("The gateway does not answer")
    page.unroute("**/parts/cluster")
    expect(stale).to_be_hidden()
    expect(live).not_to_have_class("still")
    forget_status_lines(guest)


# ---- tables and rows


@pytest.mark.part("the console in a browser")
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
    expect(page.locator(".empty")).to_contain_text("There is no row in this range of keys")
    expect(page.locator(".empty")).to_contain_text("2001-02-03 04:05:06")


def test_values_that_look_like_markup_are_shown_as_text(guest: Watched) -> None:
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


@pytest.mark.part("the console in a browser")
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
    page.get_by_label("The query").fill(f"select count(*) as n from [{ORDERS}] where id = $id")
    page.get_by_label("Parameters").fill('{"id": 9999}')
    page.get_by_role("button", name="Run").click()
    expect(result.locator("tbody td").first).to_have_text("1")
    page.get_by_label("Timestamp, 64 bits").fill(str(before_all))
    page.get_by_role("button", name="Run").click()
    expect(result.locator("tbody td")).to_have_text("0")
    expect(result).to_contain_text(str(before_all))


def test_the_console_shows_an_error_with_its_line_and_character(guest: Watched) -> None:
    page = guest.open("/query")
    page.get_by_label("YTsaurus’s query language").check()
    page.get_by_label("The query").fill(f"id,\nsumx(total) from [{ORDERS}]")
    page.get_by_role("button", name="Run").click()
    error = page.locator("#result .error")
    expect(error).to_contain_text("There is no function sumx")
    expect(error).to_contain_text("Line 2, character 1")
    expect(error).to_contain_text("invalid_request")
    page.get_by_label("The query").fill(f"id, total from [{ORDERS}] where id between 1 and 2")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result tbody tr")).to_have_count(2)
    page.get_by_label("SQL", exact=True).check()
    page.get_by_label("The query").fill("drop table x")
    page.get_by_role("button", name="Run").click()
    expect(error).to_contain_text("a query is one SELECT statement")


def test_a_query_that_cannot_be_sent_clears_the_previous_result(guest: Watched) -> None:
    page = guest.open("/query")
    result = page.locator("#result")
    page.get_by_label("The query").fill("select 41 as n")
    page.get_by_label("The query").press("Control+Enter")
    expect(result.locator("tbody td")).to_have_text("41")
    page.route("**/parts/query", lambda route: route.abort())
    page.get_by_role("button", name="Run").click()
    expect(result.get_by_role("alert")).to_contain_text("The gateway does not answer")
    assert result.locator("table").count() == 0
    page.unroute("**/parts/query")
    page.get_by_role("button", name="Run").click()
    expect(result.locator("tbody td")).to_have_text("41")
    forget_status_lines(guest)


def test_a_query_that_is_cancelled_makes_room_for_another(guest: Watched) -> None:
    """As many as there are places for, each of which would take until its deadline."""
    page = guest.open("/query")
    asked: list[str] = []
    page.on("request", lambda it: asked.append(it.method))
    text, result = page.get_by_label("The query"), page.locator("#result")
    cancel = page.get_by_role("button", name="Cancel")
    for _ in range(4):
        text.fill("select sum(a.range * b.range) from range(1000000000) a, range(1000000) b")
        text.press("Control+Enter")
        expect(cancel).to_be_visible()
        expect(result).to_have_class("still")
        text.press("Control+Enter")  # it runs already
        page.wait_for_timeout(300)
        cancel.click()
        expect(result).to_contain_text("The query was cancelled")
        expect(cancel).to_be_hidden()
        expect(result).not_to_have_class("still")
    text.fill("select 42 as n")
    text.press("Control+Enter")
    expect(result.locator("tbody td")).to_have_text("42")
    assert asked == ["POST"] * 5


def test_of_a_long_result_the_first_rows_are_shown(guest: Watched) -> None:
    page = guest.open("/query")
    query = "select range as n, repeat('x', 1000) as x from range(100000) -- as many as there are"
    page.get_by_label("The query").fill(query)
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result")).to_contain_text("The first 200 rows; there are more")
    expect(page.locator("#result tbody tr")).to_have_count(200)


# ---- what stops and dies


def test_a_silent_master_stalls_no_page_and_nothing_of_then_is_given_for_now(
    guest: Watched, cluster: LocalCluster
) -> None:
    page = guest.open("/transactions")
    expect(page.locator("main")).to_contain_text("None is open")
    cluster.pause("master")
    try:
        for path in ("/tables", f"/table?path={ORDERS}", f"/rows?path={ORDERS}", "/recoveries", ""):
            began_s = time.monotonic()
            guest.open(path)
            assert time.monotonic() - began_s < 5, path
        guest.open("/tables")
        told = re.compile("no answer from the master at http|does not answer within 3 s")
        expect(page.get_by_role("alert").last).to_contain_text(told)  # the first, once it is known
        guest.open("/transactions")
        expect(page.locator("#live")).to_contain_text(re.compile(r"As of \d.* s ago"))
    finally:
        cluster.resume("master")
    expect(page.locator("#live")).not_to_contain_text("s ago")
    forget_status_lines(guest)


def test_the_console_shows_transactions_in_doubt_and_the_recovery_that_decides_them(
    guest: Watched, cluster: LocalCluster, writer: Writer
) -> None:
    commit = Commit(cluster.master_url)
    guest.open()  # so that the gateway knows the token: its table may be there
    try:
        with writer.at_rest():  # else a commit of its own may be caught, and be in doubt too
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
        expect(page.locator("#cell-1")).to_contain_text("Last report")
        expect(page.locator(".readings .warn")).to_contain_text("1 over 1 s")
        cluster.kill("node 0")
        cluster.wait_until_ready("node 0", start_count=2)
    finally:
        cluster.resume("node 1")
    page = guest.open("/recoveries")
    crash = page.locator("#starts .start.crash").first
    expect(crash).to_contain_text("cell 0")
    expect(crash).to_contain_text("after a crash")
    expect(crash.locator("summary")).to_have_text(re.compile(r"committed|aborted"))
    crash.locator("summary").click()
    decided = crash.locator(".inner tr", has_text=str(commit.transaction))
    expect(decided).to_contain_text(re.compile("prepared.*(committed|aborted)"))
    expect(crash).to_contain_text("runs")
    show_another_start(page)
    expect(page.locator("#starts .start").first).to_contain_text("of just now")
    expect(decided).to_be_visible()
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY", "the focus was lost"
    page.unroute("**/parts/recoveries")
    expect(page.locator("#starts tr", has_text="crashed")).to_contain_text("cell 0")
    guest.open("/transactions")
    expect(page.locator("main")).not_to_contain_text(str(commit.transaction))
    commit.end()


def show_another_start(page: Page) -> None:
    """Above those that are there, from the next look on."""

    def answer(route: Route) -> None:
        text = route.fetch().text()
        (first,) = re.findall('<tbody class="start[^>]*>', text)[:1]
        other = re.sub('-[0-9]+"', '-9"', first.replace(" crash", ""))  # of another time
        text = text.replace(first, f"{other}<tr><td>of just now</td></tr></tbody>{first}", 1)
        route.fulfill(body=text, content_type="text/html")

    page.route("**/parts/recoveries", answer)


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
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    expect(page.locator("nav [aria-current=page]").first).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert unlike_paper(page) == [], scheme
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    broken = "them => them.filter(it => it.getClientRects().length > 1).map(it => it.outerHTML)"
    assert page.eval_on_selector_all(".list code, .list td a, .list .num .value", broken) == []


def test_light_is_not_dark(guest: Watched) -> None:
    page = guest.open("/query")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) != light


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
