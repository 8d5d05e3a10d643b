"""Fixtures for tests that attack real sandboxes. Every resource carries this test's random instance id."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sandboxes.docker_provider import DockerProvider
from sandboxes.sandbox import Sandbox
from tests.support.sandbox_engine import endpoint, left_over, make_spec, new_instance


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short and readable by all, unlike pytest's own: mount sources lie in it."""
    path = Path(tempfile.mkdtemp(prefix="mgt-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def instance(folder: Path) -> AsyncIterator[str]:
    """An instance id; whatever carries it at the end is removed, and must be gone."""
    name = new_instance()
    yield name
    async with DockerProvider(endpoint(), inside=folder / "inside") as cleaner:
        await cleaner.remove_ours(name)
    assert left_over(f"massgend.instance={name}") == []


@pytest.fixture
async def provider(folder: Path, instance: str) -> AsyncIterator[DockerProvider]:
    async with DockerProvider(endpoint(), inside=folder / "inside") as opened:
        yield opened


@pytest.fixture
async def sandbox(provider: DockerProvider, instance: str, folder: Path) -> Sandbox:
    return await provider.start(make_spec(instance, folder))
