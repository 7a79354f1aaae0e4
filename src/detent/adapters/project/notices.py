"""Notifying people: a notice in a file of its own or sent to a web hook, once and under a stable name."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from detent.adapters.project.effect_notes import EffectNotes, read_json
from detent.adapters.project.http import post
from detent.adapters.project.sandbox import Sandbox
from detent.engine.tools import NOT_DONE, UNKNOWN, EffectCall, Tool, ToolError

LONGEST = 20_000
"""Characters of a message."""
TIMEOUT = 15.0


class Notices:
    """Sends notices: to files in `folder`, and to the web hook if there is one."""

    def __init__(
        self,
        sandbox: Sandbox,
        notes: EffectNotes,
        webhook: str | None = None,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sandbox = sandbox
        self._notes = notes
        self._webhook = webhook
        self._folder = folder if folder is not None else sandbox.state / "notices"
        self._clock = clock

    async def send(
        self, call: EffectCall, message: str, title: str = "", channel: Literal["file", "webhook"] = "file"
    ) -> dict[str, Any]:
        """Notify people, once."""
        if not message.strip() or len(message) + len(title) > LONGEST:
            raise ToolError("invalid", f"a notice has 1 to {LONGEST:,} characters.")
        name = hashlib.sha256(call.idempotency_key.encode()).hexdigest()[:24]
        at = (
            datetime.fromtimestamp(self._clock(), UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        notice = {"id": name, "run": call.family, "title": title, "message": message, "at": at}
        return self._write(notice) if channel == "file" else await self._post(call, notice)

    def probe(self, message: str, title: str = "", channel: Literal["file", "webhook"] = "file") -> Any:
        """A file may be written again, as its name stays the same; whether a web hook got it is not known."""
        return NOT_DONE if channel == "file" else UNKNOWN

    def _write(self, notice: dict[str, Any]) -> dict[str, Any]:
        file = self._folder / f"{notice['id']}.json"
        written = read_json(file)
        if written is None:
            self._sandbox.keep(file, json.dumps(notice, ensure_ascii=False, indent=2).encode())
            written = notice
        return {"channel": "file", "id": written["id"], "delivered_at": written["at"]}

    async def _post(self, call: EffectCall, notice: dict[str, Any]) -> dict[str, Any]:
        if self._webhook is None:
            raise ToolError(
                "not_configured", "there is no web hook; set `workflow.webhook`, or use the channel 'file'."
            )
        if (note := self._notes.get(call)) is not None:
            return {"channel": "webhook", "id": notice["id"], "delivered_at": note["at"]}
        status = await post(self._webhook, notice, {"idempotency-key": notice["id"]}, TIMEOUT)
        if status in (408, 425, 429, 503):
            raise ToolError("busy", f"the web hook cannot take it now ({status}).", transient=True)
        if 300 <= status < 500:
            raise ToolError("refused", f"the web hook refused the notice ({status}).")
        if status >= 500:
            raise ConnectionError(
                f"the web hook failed ({status}); whether anybody was notified is not known."
            )
        self._notes.put(call, {"at": notice["at"]})
        return {"channel": "webhook", "id": notice["id"], "delivered_at": notice["at"]}


def notice_tools(notices: Notices) -> list[Tool]:
    """The tools for notices."""
    return [
        Tool("notify.send", notices.send, probe=notices.probe, wants_call=True, prose=("message", "title"),
             description="Tell people something, once. The receipt says channel, delivered_at."),
    ]  # fmt: skip
