"""Outputs of a cell put together from the kernel's messages, within the limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detent.adapters.jupyter.cell_result import Output
from detent.adapters.jupyter.kernel_process.output_limit import OutputLimit

MARKERS = 4096
"""Bytes by which the kernel's own markers may exceed the limits."""


class CellOutputs:
    """Collects the outputs of one cell."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._stream: list[str] = []
        """Chunks of the stream that is being written, of which only the last output's head is in the list."""
        self._limit = OutputLimit(MARKERS)
        self._shown: dict[str, list[int]] = {}
        """Places of outputs by the display id under which they may be updated."""
        self._clear_at_next = False

    def add(self, kind: str, content: Mapping[str, Any]) -> None:
        """Take in a message."""
        if kind == "clear_output":
            self._clear_at_next = bool(content.get("wait"))
            if not self._clear_at_next:
                self._clear()
            return
        if kind not in ("stream", "execute_result", "display_data", "update_display_data", "error"):
            return
        limited = self._limit.limited(kind, content)
        if limited is None:
            return
        if kind == "update_display_data":
            self._update(limited)
            return
        if self._clear_at_next:
            self._clear()
        if kind == "stream":
            self._write(str(limited.get("name", "stdout")), limited["text"])
            return
        self._end_stream()
        if kind == "error":
            self._outputs.append(_error(limited))
            return
        display = str((limited.get("transient") or {}).get("display_id") or "")
        if display:
            self._shown.setdefault(display, []).append(len(self._outputs))
        self._outputs.append(
            Output(
                "execute_result" if kind == "execute_result" else "display_data",
                text=str(limited["data"].get("text/plain", "")),
                data=limited["data"],
                metadata=dict(limited.get("metadata") or {}),
                execution_count=limited.get("execution_count"),
            )
        )

    def outputs(self) -> tuple[Output, ...]:
        """What has come so far."""
        self._end_stream()
        return tuple(self._outputs)

    def _write(self, name: str, text: str) -> None:
        if not text:
            return
        last = self._outputs[-1] if self._outputs else None
        if last is None or last.output_type != "stream" or last.name != name:
            self._end_stream()
            self._outputs.append(Output("stream", name=name))
        self._stream.append(text)

    def _end_stream(self) -> None:
        if self._stream:
            last = self._outputs[-1]
            self._outputs[-1] = replace(last, text=last.text + "".join(self._stream))
            self._stream = []

    def _update(self, content: Mapping[str, Any]) -> None:
        self._end_stream()
        for place in self._shown.get(str((content.get("transient") or {}).get("display_id") or ""), ()):
            data = content["data"]
            self._outputs[place] = replace(
                self._outputs[place], text=str(data.get("text/plain", "")), data=data,
                metadata=dict(content.get("metadata") or {}),
            )  # fmt: skip

    def _clear(self) -> None:
        self._outputs, self._stream, self._shown, self._clear_at_next = [], [], {}, False


def _error(content: Mapping[str, Any]) -> Output:
    traceback = tuple(content["traceback"])
    return Output(
        "error",
        text="\n".join(traceback) or f"{content['ename']}: {content['evalue']}",
        ename=content["ename"],
        evalue=content["evalue"],
        traceback=traceback,
    )
