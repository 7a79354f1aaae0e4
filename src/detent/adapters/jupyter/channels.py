"""The connection to a kernel: requests go out, replies, outputs and heartbeats come in."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Channel = Literal["shell", "iopub", "control"]
PING_EVERY = 1.0


class Message(NamedTuple):
    """A message of the kernel."""

    channel: Channel
    request: str
    """Id of the request it belongs to."""
    kind: str
    content: Mapping[str, Any]


class KernelChannels:
    """Sockets of one kernel, for one event loop."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        import zmq
        import zmq.asyncio
        from jupyter_client.asynchronous.client import AsyncKernelClient

        self._client = AsyncKernelClient()
        known: Any = dict(settings)
        self._client.load_connection_info(known)
        self._client.start_channels(shell=True, iopub=True, stdin=False, hb=False, control=True)
        self._heartbeat: Any = self._client.context.socket(zmq.DEALER)
        self._heartbeat.linger = 0
        self._heartbeat.connect(f"ipc://{settings['ip']}-{settings['hb_port']}")
        self._sockets: dict[Any, Channel] = {
            self._client.shell_channel.socket: "shell",
            self._client.iopub_channel.socket: "iopub",
            self._client.control_channel.socket: "control",
        }
        self._poller = zmq.asyncio.Poller()
        for socket in (*self._sockets, self._heartbeat):
            self._poller.register(socket, zmq.POLLIN)
        self._asked: float | None = None
        """When the oldest heartbeat without an answer was sent."""
        self._next_ping = 0.0

    def send(
        self,
        kind: str,
        content: Mapping[str, Any],
        *,
        metadata: Mapping[str, Any] | None = None,
        channel: Literal["shell", "control"] = "shell",
    ) -> str:
        """Send a request and give its id."""
        message = self._client.session.msg(kind, dict(content), metadata=dict(metadata or {}))
        (self._client.shell_channel if channel == "shell" else self._client.control_channel).send(message)
        return str(message["header"]["msg_id"])

    async def receive(self, seconds: float) -> list[Message]:
        """The messages that are there, or come within this time."""
        await self._ping()
        messages: list[Message] = []
        for socket, _ in await self._poller.poll(max(int(seconds * 1000), 0)):
            if socket is self._heartbeat:
                await socket.recv_multipart()
                self._asked = None
                continue
            frames = await socket.recv_multipart()
            with contextlib.suppress(ValueError, KeyError, TypeError):  # not signed with our key, or damaged
                session = self._client.session
                received = session.deserialize(session.feed_identities(frames)[1])
                request = str((received.get("parent_header") or {}).get("msg_id", ""))
                messages.append(
                    Message(
                        self._sockets[socket], request, received["header"]["msg_type"], received["content"]
                    )
                )
        return messages

    async def _ping(self) -> None:
        now = time.monotonic()
        if now >= self._next_ping:
            await self._heartbeat.send(b"ping")
            self._next_ping = now + PING_EVERY
            if self._asked is None:
                self._asked = now

    def silent_for(self) -> float:
        """Seconds since a heartbeat was asked for that has not come."""
        return 0.0 if self._asked is None else time.monotonic() - self._asked

    def close(self) -> None:
        """Close the sockets."""
        with contextlib.suppress(Exception):
            self._client.stop_channels()
        self._heartbeat.close()
        self._client.context.destroy(linger=0)
