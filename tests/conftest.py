"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio, as the product does."""
    return "asyncio"
