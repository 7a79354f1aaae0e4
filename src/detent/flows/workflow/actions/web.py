"""Actions on the web: fetching, into the run or into a file."""

from __future__ import annotations

from typing import Any, TypedDict

from detent.dispatch.equivalence import CompareRules
from detent.engine.context import StepContext
from detent.engine.step import StepFailed
from detent.flows.workflow.registry import action

NO_HEADERS: dict[str, str] = {}


class Fetched(TypedDict):
    status: int
    headers: dict[str, str]
    """Names in small letters; those that set cookies are left out."""
    text: str
    json: Any
    """The body's value where it says that it is JSON, and is; else null."""


class Downloaded(TypedDict):
    path: str
    bytes: int
    sha256: str


@action(
    "http_get",
    intent="Fetch a web resource by GET and return its status, headers and body.",
    queries=["http.fetch"],
    output_schema=Fetched,
    compare=CompareRules(ignore=["/headers/date"]),
)
async def http_get(
    ctx: StepContext,
    url: str,
    headers: dict[str, str] = NO_HEADERS,
    timeout: float = 30,
    max_bytes: int = 5_000_000,
) -> dict[str, Any]:
    """Fetch; a server that is busy (429, 503) or away is a passing failure, any other answer is one."""
    found = await ctx.query(
        "http.fetch", url=url, headers=dict(headers), timeout=timeout, max_bytes=max_bytes
    )
    return {name: found[name] for name in ("status", "headers", "text", "json")}


@action(
    "http_download",
    intent="Fetch a web resource and keep its bytes in the named project file.",
    effects=["files.write"],
    queries=["http.fetch"],
    output_schema=Downloaded,
    rollback="restore_file",
)
async def http_download(ctx: StepContext, url: str, path: str, timeout: float = 60) -> dict[str, Any]:
    """Download; anything but success from the server fails the step, and no file is touched."""
    found = await ctx.query("http.fetch", url=url, timeout=timeout, spool=True)
    if found["spool"] is None:
        raise StepFailed(f"The server answered with status {found['status']}, so nothing was kept.")
    done = ctx.propose("files.write", path=path, spool=found["spool"])
    return {"path": path, "bytes": done.bytes, "sha256": done.sha256}
