"""The first token's text is in its file before the token is made, whatever goes wrong."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dodona.aio
from dodona.aio import AsyncClient
from dodona.errors import CommitOutcomeUnknown, DodonaError, InvalidRequest, Unavailable
from dodona_gateway.core.access.tokens import accept, parse_token
from dodona_gateway.shell import first_token
from dodona_gateway.shell.first_token import FirstToken
from dodona_gateway.shell.tokens import TokenStore, ensure_first_token, read_first_token

pytestmark = pytest.mark.anyio


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with await dodona.aio.open(tmp_path / "db") as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "given").mkdir()
    return tmp_path / "given" / "token"


async def is_good(db: AsyncClient, file: Path) -> bool:
    """Whether what is in the file allows anything; nothing else lies beside it."""
    assert [it.name for it in file.parent.iterdir()] == [file.name]
    presented = parse_token(file.read_text().strip())
    token = await TokenStore(db).find(presented.id)
    return token is not None and accept(token, presented, 1) == token


async def test_the_first_token_is_made_once_in_a_file_for_its_owner_only(
    db: AsyncClient, file: Path, tmp_path: Path
) -> None:
    assert await FirstToken(db, file).provide()
    assert await is_good(db, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not await FirstToken(db, file).provide()
    assert not await FirstToken(db, tmp_path / "other").provide()
    assert not (tmp_path / "other").exists()


async def test_a_symbolic_link_to_the_token_file_is_kept(
    db: AsyncClient, file: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert await FirstToken(db, link).provide()
    assert link.is_symlink()
    assert await is_good(db, file)


@pytest.mark.parametrize("error", [CommitOutcomeUnknown("lost"), Unavailable("lost")])
@pytest.mark.parametrize("is_made", [False, True])
async def test_a_retry_after_a_lost_answer_leaves_a_valid_first_token_in_the_file(
    db: AsyncClient,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: DodonaError,
    is_made: bool,
) -> None:
    errors = [error]

    async def ensure(client: AsyncClient, text: str) -> str | None:
        made = await ensure_first_token(client, text) if is_made or not errors else None
        if errors:
            raise errors.pop()
        return made

    monkeypatch.setattr(first_token, "ensure_first_token", ensure)
    first = FirstToken(db, file)
    with pytest.raises(type(error)):
        await first.provide()
    assert not file.exists()
    assert await first.provide()
    assert await is_good(db, file)


async def test_an_unwritable_token_file_is_reported_before_a_token_exists(
    db: AsyncClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open
    is_full = [True]

    def full(path: Any, *rest: Any, **options: Any) -> int:
        if str(path).startswith(str(file)) and is_full:
            raise OSError(28, "No space left on device")
        return real(path, *rest, **options)

    monkeypatch.setattr(os, "open", full)
    first = FirstToken(db, file)
    with pytest.raises(InvalidRequest, match="No space left"):
        await first.provide()
    assert await TokenStore(db).list() == []
    is_full.clear()
    assert await first.provide()
    assert await is_good(db, file)


def test_a_missing_folder_of_the_token_file_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"the folder .* does not exist"):
        read_first_token(tmp_path / "none" / "token")
    file = tmp_path / "none" / "token"
    command = [sys.executable, "-m", "dodona_gateway", "--first-token-file", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert f"the folder {file.parent} does not exist" in ended.stderr
