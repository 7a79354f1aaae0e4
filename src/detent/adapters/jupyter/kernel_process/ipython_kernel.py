"""The kernel itself: IPython's, with limited output and an answer to the engine's questions."""

from __future__ import annotations

import json
import os
import sys
from collections import OrderedDict
from typing import Any

from detent.adapters.jupyter.kernel_process.output_limit import OutputLimit, shortened
from detent.adapters.jupyter.kernel_process.probe import Probe, error_line

REMEMBERED = 4
"""Cells of which it is remembered how much they have sent: threads may print after theirs has ended."""
OUTPUTS = frozenset({"stream", "execute_result", "display_data", "update_display_data", "error"})

UNHEARD = frozenset({"comm_open", "comm_msg", "comm_close", "execute_input"})
"""What only a notebook in a browser listens to; widgets may send any amount."""


def run(connection: str, launcher: int) -> None:
    """Be the kernel of a connection file until told to shut down."""
    from ipykernel import compiler
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp
    from jupyter_client.session import Session
    from traitlets import default

    class LimitedSession(Session):
        """Sends what the limits of its cell leave of a message."""

        def send(
            self,
            stream: Any,
            msg_or_type: Any,
            content: Any = None,
            parent: Any = None,
            *more: Any,
            **how: Any,
        ) -> Any:
            message = msg_or_type if isinstance(msg_or_type, dict) else None
            kind = message["header"]["msg_type"] if message is not None else msg_or_type
            body = message["content"] if message is not None else content
            if kind in OUTPUTS:
                source = (
                    message["parent_header"] if message is not None else (parent or {}).get("header", parent)
                )
                body = budgets.of(str((source or {}).get("msg_id"))).limited(str(kind), body)
                if body is None:
                    return None
            elif kind in UNHEARD:
                return None
            elif kind == "execute_reply":
                body = {**body, "payload": [], "traceback": []}
                body["evalue"] = shortened(str(body.get("evalue", "")), 500)
            if message is not None:
                return super().send(stream, {**message, "content": body}, None, parent, *more, **how)
            return super().send(stream, msg_or_type, body, parent, *more, **how)

    class NotebookKernel(IPythonKernel):
        """Answers `probe_request` beside the usual messages."""

        msg_types = [*IPythonKernel.msg_types, "probe_request"]  # noqa: RUF012

        def probe_request(self, stream: Any, ident: Any, parent: Any) -> None:
            """Answer a question about the namespace; no cell, no history, no count, no event."""
            shell: Any = self.shell
            try:
                answer = Probe(shell.user_ns, shell.user_ns_hidden).answer(parent["content"])
            except BaseException as error:
                answer = {"error": error_line(error)}
            session: Any = self.session
            session.send(stream, "probe_reply", {"answer": json.dumps(answer)}, parent, ident=ident)

    class KernelApp(IPKernelApp):
        """Makes the kernel above with the session above."""

        kernel_class = NotebookKernel

        @default("session")
        def _session_default(self) -> Session:
            return LimitedSession(parent=self)

    # Warnings name the file of their cell: not with our process id, which is another one each time.
    names: Any = compiler
    names.get_tmp_directory = lambda: "notebook"
    budgets = _Budgets()
    app: Any = KernelApp.instance()
    app.initialize(
        [
            f"--IPKernelApp.connection_file={connection}",
            f"--IPKernelApp.parent_handle={launcher}",
            "--HistoryManager.enabled=False",
            "--InteractiveShell.colors=nocolor",
        ]
    )
    _close_log()
    app.start()


class _Budgets:
    """The output limit of each of the last cells."""

    def __init__(self) -> None:
        self._limits: OrderedDict[str, OutputLimit] = OrderedDict()

    def of(self, request: str) -> OutputLimit:
        limit = self._limits.setdefault(request, OutputLimit())
        while len(self._limits) > REMEMBERED:
            self._limits.popitem(last=False)
        return limit


def _close_log() -> None:
    """Stop echoing what subprocesses print: the log was for the start, and has no limit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        copy = getattr(stream, "_original_stdstream_copy", None)
        if copy is not None:
            os.dup2(nowhere, copy)
    os.close(nowhere)
