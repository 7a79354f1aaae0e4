"""Real MCP servers to talk to, and a look at what they did."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from detent.adapters.mcp.server import McpServer
from detent.kernel.policy import RetryPolicy

SCRIPT = Path(__file__).parent / "pages.py"
NO_WAIT = RetryPolicy(3, 0, 0)
QUERIES = (
    "search", "who", "token", "picture", "as_json", "as_number", "not_a_number", "nothing", "hostile",
)  # fmt: skip


class Book:
    """What a server really did."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def pid(self, what: str) -> int:
        """The process that wrote the latest line of this kind."""
        return int([line for line in self.lines if line[0] == what][-1][-1])

    def has(self, what: str, times: int = 1) -> bool:
        return sum(line[0] == what for line in self.lines) >= times


class Web:
    """The server as a process of its own that listens on the loopback address."""

    def __init__(self, book: Book, *options: str, port: int = 0, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), "--http", *options],
            env={**os.environ, "BOOK": str(book.path), "PORT": str(port), **env},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "book.txt")


@pytest.fixture
def web(book: Book) -> Iterator[Callable[..., Web]]:
    """Starts servers that listen; they are gone after the test."""
    started: list[Web] = []

    def start(*options: str, **env: Any) -> Web:
        started.append(Web(book, *options, **env))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture(scope="session")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Web, Book]]:
    """A server that listens, for all tests that leave it as it is, and the book it writes."""
    book = Book(tmp_path_factory.mktemp("pages") / "book.txt")
    server = Web(book)
    yield server, book
    server.kill()


@pytest_asyncio.fixture
async def child(book: Book, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., McpServer]]:
    """Declares servers started as a child process; closed after the test."""
    monkeypatch.setenv("TEST_BOOK", str(book.path))
    made: list[McpServer] = []

    def declare(*arguments: str, name: str = "pages", **options: Any) -> McpServer:
        options.setdefault("queries", QUERIES)
        options["env"] = {"BOOK": "TEST_BOOK", **options.get("env", {})}
        made.append(
            McpServer(name, command=["python", str(SCRIPT), *arguments], **{"retry": NO_WAIT, **options})
        )
        return made[-1]

    yield declare
    await asyncio.gather(*(server.close() for server in made))


@pytest_asyncio.fixture(params=[pytest.param("child", marks=pytest.mark.exhaustive), "web"])
async def pages(
    request: pytest.FixtureRequest, child: Callable[..., McpServer], book: Book
) -> AsyncIterator[Callable[..., McpServer]]:
    """Declares the same server, reached in either way; tests of `child` reach it as a child every time."""
    made: list[McpServer] = []

    def declare(**options: Any) -> McpServer:
        if request.param == "child":
            return child(**options)
        options.setdefault("queries", QUERIES)
        server, written = request.getfixturevalue("listening")
        book.path = written.path
        book.path.unlink(missing_ok=True)
        made.append(McpServer("pages", url=server.url, **{"retry": NO_WAIT, **options}))
        return made[-1]

    yield declare
    await asyncio.gather(*(server.close() for server in made))


def alive(pid: int) -> bool:
    """True while a process is there and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
