"""Every endpoint × every kind of caller, against a real gateway: who is let in, and that nothing
happens for anybody else."""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from starlette.routing import Route as Served

import dodona
from dodona.errors import Unauthenticated
from dodona_gateway.core.access.grants import TOKENS
from dodona_gateway.core.console.visit import LOGIN, LOGOUT, STATIC, STATIC_FILES, is_console
from dodona_gateway.shell.console.console import LOGIN_ROUTES, METHODS, NOWHERE, PAGES
from dodona_gateway.shell.edge import OPEN_PATHS
from dodona_gateway.shell.gateway import create_gateway
from dodona_gateway.shell.settings import GatewaySettings
from dodona_local.launcher import LocalCluster
from dodona_server.settings import parse_settings
from dodona_ytsaurus.commands.api import COMMANDS
from integration.gateway.permissions import CASES, MINE, OTHERS, SCHEMA, TABLE, Case
from integration.gateway.rest import BY_NAME, INSIDES, Rest, problem_of
from suite.waiting import wait_until, with_enough_time

pytestmark = pytest.mark.integration

GRANTS: Final = sorted({it for case in CASES for it in (case.enough, *case.too_little())})
FILES: Final = [STATIC + name for name in STATIC_FILES]
YTSAURUS: Final = {
    "/api",
    "/api/v4",
    "/api/v4/discover_proxies",
    "/api/v4/{command}",
    "/api/{rest:path}",
    "/auth/whoami",
    "/hosts",
}
"""Of which each command is in `COMMANDS`."""


def authorization(value: str | None) -> httpx.Headers:
    """A header with any bytes, or none."""
    return httpx.Headers([] if value is None else [(b"authorization", value.encode("latin-1"))])


class Realm:
    """A cluster whose gateway asks for tokens, some of which are no good, and what is in it."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.url = cluster.gateway_urls[0]
        self.folder = folder
        self.made: list[Rest] = []
        self.admin = Rest(self.url, cluster.admin_token)
        self.nobody = Rest(self.url)
        """Whose header is set anew each time."""
        self.db = dodona.connect(cluster.master_url)
        self.secrets = [cluster.admin_token]
        for path in ("//mine", "//others"):
            self.admin("create_directory", path=path)
        self.admin("create_table", path=TABLE, schema=SCHEMA, mount=True)
        self.admin("insert_rows", table=TABLE, rows=[{"id": 1, "v": "x"}])
        self.callers = {grant: self.caller(self.token(grant)) for grant in GRANTS}
        self.others = self.caller(self.token(f"read:{OTHERS}"))
        revoked = self.token("admin:/")
        self.caller(revoked)("get_cluster")  # so that the gateway knows it as it was
        self.admin("revoke_token", id=revoked.split("_")[1])
        expired = self.expired()
        unknown = f"dodona_{secrets.token_hex(8)}_{'A' * 43}"
        stolen_id = f"{cluster.admin_token[:24]}{'A' * 43}"
        self.secrets += [unknown, stolen_id]
        no_good = {
            "none": None,
            "empty": "",
            "scheme": f"Basic {cluster.admin_token}",
            "bare": cluster.admin_token,
            "malformed": f"Bearer {cluster.admin_token}x",
            "long": "Bearer " + "x" * 9000,
            "odd": "Bearer \xe4 \xff",
            "unknown": f"Bearer {unknown}",
            "wrong secret": f"Bearer {stolen_id}",
            "expired": f"Bearer {expired}",
            "revoked": f"Bearer {revoked}",
        }
        self.no_good = {name: authorization(it) for name, it in no_good.items()}

    def expired(self) -> str:
        """A token that the gateway has known, and that is no good any more."""
        text, held_ms = "", 0

        def call(time_ms: int) -> None:
            nonlocal text, held_ms
            text, held_ms = self.token("admin:/", expires_s=time_ms // 1000), time_ms
            self.caller(text).attempt("get_cluster")

        with_enough_time(call, 1_000, Unauthenticated)
        time.sleep(held_ms / 1000 + 0.1)
        return text

    def token(self, *grants: str, **options: Any) -> str:
        made = self.admin("create_token", name="somebody", grants=list(grants), **options)
        self.secrets.append(made["token"])
        text: str = made["token"]
        return text

    def caller(self, token: str) -> Rest:
        made = Rest(self.url, token)
        self.made.append(made)
        return made

    def state(self) -> Any:
        """All that is in the database."""
        paths = self.db.list_tables()
        rows = {it: list(self.db.select(it)) for it in paths if self.db.get_table(it).is_mounted}
        nodes = {it: self.db.get(f"{it}/@") for it in (*paths, "//mine", "//others")}
        return self.db.get("//"), nodes, rows

    def logs(self) -> str:
        return "".join(it.read_text(errors="replace") for it in (self.folder / "logs").iterdir())

    def close(self) -> None:
        for it in (self.admin, self.nobody, *self.made):
            it.http.close()
        self.db.close()


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    folder: Path = tmp_path_factory.mktemp("realm") / "data"
    with LocalCluster(folder, gateway_count=1) as cluster:
        made = Realm(cluster, folder)
        yield made
        made.close()


def fields_of(case: Case, caller: Rest, realm: Realm) -> dict[str, Any]:
    """The request's, those included that are known only now."""
    if case.operation == "revoke_token":
        made = realm.admin("create_token", name="to be revoked", grants=["read:/"])
        realm.secrets.append(made["token"])
        return {"id": made["about"]["id"]}
    if case.in_transaction:
        return {"transaction": caller("begin_transaction")["transaction"], **case.fields}
    return case.fields


# ---- the matrix


def test_every_served_endpoint_has_a_permission_case() -> None:
    served: set[tuple[str, str]] = set()
    settings = parse_settings(GatewaySettings, "gateway", ["--insecure"])
    for it in create_gateway(settings)._application.routes:  # type: ignore[attr-defined]
        assert isinstance(it, Served)
        if it.path not in YTSAURUS:
            served |= {(method, it.path) for method in it.methods or () if method != "HEAD"}
    health = ("/healthz", "/readyz", "/startupz", "/openapi.json")
    open_to_all = {("GET", path) for path in (*health, *FILES)}
    open_to_all |= {(method, path) for method, path, _ in LOGIN_ROUTES}
    looks_itself = {("GET", "/metrics")}
    pages = {(method, path) for method, path, _ in PAGES}
    pages |= {(method, NOWHERE) for method in METHODS}
    cases = {(BY_NAME[it.operation].method, BY_NAME[it.operation].path) for it in CASES}
    assert served == cases | open_to_all | looks_itself | pages
    assert {it.operation for it in CASES} == set(BY_NAME)
    assert {path for _, path in open_to_all} <= OPEN_PATHS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operation)
def test_an_operation_accepts_only_callers_with_the_required_grant(
    case: Case, realm: Realm
) -> None:
    """In order: what one carries out the next may need."""
    right = realm.callers[case.enough]
    fields = fields_of(case, right, realm)
    before = realm.state()
    for name, headers in realm.no_good.items():
        realm.nobody.http.headers = headers
        refused = realm.nobody.send(case.operation, **fields)
        problem = problem_of(refused)
        assert (problem.status, problem.kind) == (401, "unauthenticated"), name
        assert refused.headers["www-authenticate"] == "Bearer"
    for grant in case.too_little():
        poor = realm.callers[grant]
        tried = fields_of(case, poor, realm) if case.in_transaction else fields
        problem = poor.refused(case.operation, **tried)
        assert (problem.status, problem.kind) == (403, "forbidden"), grant
        assert problem.attributes["role"] in (case.role, "read")  # of a copy's source
    if case.is_owners:
        problem = realm.callers[f"admin:{MINE}"].refused(case.operation, **fields)
        assert (problem.status, problem.kind) == (404, "transaction_not_found")
    assert realm.state() == before
    if case.is_somewhere:
        tried = fields_of(case, realm.others, realm) if case.in_transaction else fields
        assert realm.others.send(case.operation, **tried).is_success
    if case.is_filtered:
        assert realm.others(case.operation, **fields) == {"paths": []}
    done = right.send(case.operation, **fields)
    assert done.status_code == BY_NAME[case.operation].status, done.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_metrics_are_for_administrators_of_everything(method: str, realm: Realm) -> None:
    """And for whoever has their key, if there is one: here is none."""
    for name, headers in realm.no_good.items():
        realm.nobody.http.headers = headers
        assert realm.nobody.http.request(method, "/metrics").status_code == 401, name
    for grant, caller in realm.callers.items():
        status = 200 if grant == "admin:/" else 403
        assert caller.http.request(method, "/metrics").status_code == status, grant
    assert "dodona_gateway_ready 1.0" in realm.admin.http.get("/metrics").text


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/startupz", "/openapi.json"])
def test_health_and_the_description_are_open_to_all(path: str, realm: Realm) -> None:
    for headers in realm.no_good.values():
        realm.nobody.http.headers = headers
        assert realm.nobody.http.get(path).status_code == 200


@pytest.mark.parametrize(
    "target",
    ["/", "/v1", "/v1/table/", "/docs", "/metrics/", "/v1/rows/insert/x", "/openapi.json/"],
)
def test_an_unknown_path_is_401_without_a_token_and_404_for_an_administrator(
    target: str, realm: Realm
) -> None:
    realm.nobody.http.headers = authorization(None)
    assert problem_of(realm.nobody.http.get(target)).status == 401
    assert problem_of(realm.admin.http.get(target)).status == 404


def test_an_unsupported_method_is_401_without_a_token_and_405_for_an_administrator(
    realm: Realm,
) -> None:
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE"):
        realm.nobody.http.headers = authorization(None)
        stranger = realm.nobody.http.request(method, "/v1/tables")
        assert stranger.status_code == 401
        known = realm.admin.http.request(method, "/v1/tables")
        assert known.status_code == 405
        assert sorted(known.headers["allow"].split(", ")) == ["GET", "POST"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_command_of_ytsaurus_is_for_strangers(command: str, realm: Realm) -> None:
    method = COMMANDS[command].method
    before = realm.state()
    for name, headers in realm.no_good.items():
        realm.nobody.http.headers = headers
        refused = realm.nobody.http.request(method, f"/api/v4/{command}")
        assert refused.status_code == 401, name
        assert INSIDES.search(refused.text) is None
    assert realm.state() == before


# ---- what has two sides


def test_a_copy_takes_reading_here_and_admin_there(realm: Realm) -> None:
    realm.admin("create_directory", path="//mine/two")
    asked = {"source": "//mine/two", "destination": "//others/two"}
    for grants in (
        ["admin://others/**"],
        ["admin://mine/**"],
        ["read://mine/two", "admin:" + OTHERS],
    ):
        caller = realm.caller(realm.token(*grants))
        for operation in ("copy_node", "move_node"):
            assert caller.refused(operation, **asked).status == 403, grants
    reader = realm.caller(realm.token(f"read:{MINE}", f"admin:{OTHERS}"))
    assert reader.refused("move_node", **asked).status == 403
    reader("copy_node", **asked)
    assert realm.db.exists("//others/two")
    realm.admin("remove_node", path="//others/two")


def test_a_query_requires_the_read_grant_for_all_its_tables(realm: Realm) -> None:
    realm.admin("create_table", path="//others/t", schema=SCHEMA, mount=True)
    sql = f"select * from [{TABLE}] union all select * from [//others/t]"
    for grant in (f"read:{MINE}", f"read:{OTHERS}"):
        assert realm.caller(realm.token(grant)).refused("query_rows", sql=sql).status == 403
    both = realm.caller(realm.token(f"read:{MINE}", f"read:{OTHERS}"))
    assert both("query_rows", sql=sql)["columns"] == ["id", "v"]


def test_locks_require_the_write_grant_for_their_tables(realm: Realm) -> None:
    locks = {TABLE: [{"id": 1}]}
    reader = realm.caller(realm.token(f"read:{MINE}", f"write:{OTHERS}"))
    assert reader.refused("begin_transaction", locks=locks).status == 403
    writer = realm.caller(realm.token(f"write:{MINE}"))
    begun = writer("begin_transaction", locks=locks)
    assert begun["locked_rows"] == locks
    writer("abort_transaction", begun["transaction"])


def test_only_an_administrator_of_everything_can_access_the_table_of_tokens(realm: Realm) -> None:
    """Their table holds what would let one guess, or make, a token."""
    nearly = realm.caller(realm.token("admin://*", "admin://mine/**", "write:/", "admin://sys"))
    before = realm.state()
    asked: list[tuple[str, dict[str, Any]]] = [
        ("select_rows", {"table": TOKENS}),
        ("lookup_rows", {"table": TOKENS, "keys": [{"id": "0" * 16}]}),
        ("lookup_versions", {"table": TOKENS, "keys": [{"id": "0" * 16}]}),
        ("query_rows", {"sql": f"select * from [{TOKENS}]"}),
        ("bulk_read", {"table": TOKENS}),
        ("insert_rows", {"table": TOKENS, "rows": [{"id": "0" * 16}]}),
        ("delete_rows", {"table": TOKENS, "keys": [{"id": "0" * 16}]}),
        ("bulk_write", {"table": TOKENS, "content": ("application/x-ndjson", b"")}),
        ("copy_node", {"source": TOKENS, "destination": "//mine/tokens"}),
        ("copy_node", {"source": "//sys", "destination": "//mine/sys"}),
        ("move_node", {"source": TOKENS, "destination": "//mine/tokens"}),
        ("remove_node", {"path": "//sys", "recursive": True}),
        ("remove_node", {"path": TOKENS}),
        ("unmount_table", {"path": TOKENS}),
        ("get_node", {"path": "//"}),
        ("get_table", {"path": TOKENS}),
        ("set_node", {"path": f"{TOKENS}/@x", "value": 1}),
    ]
    for operation, fields in asked:
        assert nearly.refused(operation, **fields).status == 403, operation
    assert TOKENS not in nearly("list_tables")["paths"]
    assert realm.state() == before


# ---- the console


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in PAGES])
def test_no_page_of_the_console_is_for_strangers(method: str, path: str, realm: Realm) -> None:
    """A page sends them to the login page; a part of one has the script do so."""
    for name, headers in realm.no_good.items():
        realm.nobody.http.headers = headers
        refused = realm.nobody.http.request(method, path)
        assert refused.content == b"", name
        if "/parts/" in path:
            assert (refused.status_code, refused.headers["hx-redirect"]) == (401, LOGIN)
        else:
            assert (refused.status_code, refused.headers["location"]) == (303, LOGIN)
    shown = [it.get("authorization", "") for it in realm.no_good.values()]
    realm.nobody.http.headers = authorization(None)
    for token in [it.removeprefix("Bearer ") for it in shown if it.startswith("Bearer dodona_")]:
        cookie = {"cookie": f"dodona_token={token}"}
        refused = realm.nobody.http.request(method, path, headers=cookie)
        assert refused.status_code in (303, 401)


def visit(realm: Realm, *grants: str) -> httpx.Client:
    """A browser with the cookie of a token of such grants."""
    cookie = {"cookie": f"dodona_token={realm.token(*grants)}"}
    return httpx.Client(base_url=realm.url, headers=cookie, timeout=60)


def test_the_console_shows_only_data_that_the_token_allows(realm: Realm) -> None:
    realm.admin("create_table", path="//others/hidden", schema=SCHEMA, mount=True)
    begun = realm.admin("begin_transaction")["transaction"]
    with visit(realm, f"read:{MINE}") as reader, visit(realm, "admin:/") as admin:
        for path in (
            "",
            "/tables",
            "/transactions",
            "/recoveries",
            "/query",
            f"/rows?path={TABLE}",
        ):
            shown = reader.get(f"/console{path}")
            assert shown.status_code == 200, path
            assert "//others" not in shown.text.replace("//others/**", ""), path
            assert INSIDES.search(shown.text) is None
        wait_until(lambda: "//others/hidden" in admin.get("/console").text, pause_s=0.05)
        seen = reader.get("/console").text
        assert (TABLE in seen, "tables that your token does not show" in seen) == (True, True)
        assert "//others" not in seen, "it is known by now, and has no name here"
        for path in ("/table", "/rows"):
            assert reader.get(f"/console{path}?path=//others/hidden").status_code == 403
            assert admin.get(f"/console{path}?path=//others/hidden").status_code == 200
        assert begun not in reader.get("/console/transactions").text
        assert begun in admin.get("/console/transactions").text
        for part in ("query", "parts/query"):
            asked = {"query": "select * from [//others/hidden]", "language": "sql"}
            for language in ("sql", "yt"):
                asked["language"] = language
                origin = {"origin": realm.url}
                refused = reader.post(f"/console/{part}", data=asked, headers=origin)
                assert "does not grant read" in refused.text
    with visit(realm, "write://nothing/here") as poor:
        assert "Your token shows no table here" in poor.get("/console/tables").text


def test_a_cookie_is_good_for_the_console_alone(realm: Realm) -> None:
    with visit(realm, "admin:/") as admin:
        assert admin.get("/console").status_code == 200
        assert admin.get("/v1/cluster").status_code == 401
        assert admin.post("/v1/tokens", json={}).status_code == 401
        assert admin.get("/api/v4/get").status_code == 401


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "http://127.0.0.1:1"])
def test_a_form_of_another_page_does_nothing(realm: Realm, origin: str | None) -> None:
    headers = {} if origin is None else {"origin": origin}
    token = realm.token("admin:/")
    with visit(realm, "admin:/") as admin:
        for path, data in (
            (LOGIN, {"token": token}),
            (LOGOUT, {}),
            ("/console/query", {"query": "select 1"}),
            ("/console/parts/query", {"query": "select 1"}),
        ):
            refused = admin.post(path, data=data, headers=headers)
            assert refused.status_code == 403, path
            assert "set-cookie" not in refused.headers
            assert "was not sent by a page of this console" in refused.text


@pytest.mark.parametrize(
    "content",
    [b"", b"token=", b"token=dodona_x", b"token=" + b"x" * 9000, b"%ff=%ff", b"&" * 4000, b"\xff"],
)
def test_a_login_without_a_valid_token_is_refused(realm: Realm, content: bytes) -> None:
    headers = {
        "origin": realm.url,
        "content-type": "application/x-www-form-urlencoded",
    }
    refused = httpx.post(f"{realm.url}{LOGIN}", content=content, headers=headers)
    assert refused.status_code in (400, 401)
    assert "set-cookie" not in refused.headers
    assert INSIDES.search(refused.text) is None


def test_every_answer_of_the_console_has_a_content_security_policy(realm: Realm) -> None:
    with visit(realm, "admin:/") as admin:
        targets = [path for method, path, _ in PAGES if method == "GET"]
        targets += [LOGIN, *FILES, "/console/rows?path=//no/such", "/console/table?path=x"]
        targets += ["/console/none", "/console/tables/", "/console/parts/none", f"{STATIC}none.js"]
        for target in targets:
            answer = admin.get(target)
            assert "script-src 'self'" in answer.headers["content-security-policy"], target
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert is_console(httpx.URL(answer.url).path)


def test_the_logs_contain_calls_and_callers_but_no_secrets(realm: Realm) -> None:
    logs = realm.logs()
    assert "create_token" in logs
    assert "somebody" in logs
    for token in realm.secrets:
        assert token not in logs
        assert token.split("_", 2)[2] not in logs
    assert "Traceback" not in logs
