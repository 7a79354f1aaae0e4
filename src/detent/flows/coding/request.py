"""Requests of a session: a prompt becomes a run, one at a time, behind what the session has said before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.engine.exclusive import EXCLUSIVE
from detent.engine.journal_reader import rows_of
from detent.engine.ports import RunQuery
from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.options import RequestOptions
from detent.flows.coding.paired_messages import replies
from detent.flows.coding.request_data import RequestData
from detent.flows.coding.sessions.ids import check_session_id, new_session_id
from detent.flows.coding.sessions.in_store import is_deleted
from detent.kernel.budget import Budget
from detent.kernel.errors import ConfigurationError, DetentError, KeyTaken, RunNotFound, RunStateError
from detent.kernel.plain import digest
from detent.kernel.run import Run
from detent.kernel.run_config import STEPS
from detent.kernel.status import Status

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.ports import RunRow
    from detent.flows.coding.sessions.folder import SessionFolder
    from detent.flows.coding.sessions.record import SessionRecord

FLOW = "coding"
LAST = "last"
REPLACED = "another prompt came after an interrupt"


class SessionBusy(DetentError):
    """A session's last request is still open."""

    exit_code = 2

    def __init__(self, session: str, run_id: str, why: str) -> None:
        self.session = session
        self.run_id = run_id
        super().__init__(f"Session {session} {why}")


@dataclass(frozen=True, slots=True)
class Started:
    """A request under way."""

    run_id: str
    session_id: str


def existing_folder(workspace: Path) -> Path:
    """The folder to work in, absolute.

    Raises:
        ConfigurationError: there is none.
    """
    folder = workspace.expanduser().resolve()
    if not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder} to work in.")
    return folder


def session_key(session: str) -> str:
    """The key by which one request of a session is open at a time."""
    return f"session {session}"


def workspace_tag(workspace: Path) -> str:
    """The tag of the requests of a workspace."""
    return f"workspace:{digest(str(workspace), 12)}"


async def start_request(
    engine: Engine,
    prompt: str,
    *,
    workspace: Path,
    options: RequestOptions,
    session: str | None = None,
    folder: SessionFolder | None = None,
    budget: Budget | None = None,
    tags: Sequence[str] = (),
    steps: Mapping[str, Any] | None = None,
    drive: bool = True,
) -> Started:
    """Start a request in a new session, in a given one, or in this workspace's newest (`last`).

    An interrupted request of the session is cancelled. `steps` says who performs its steps, and those of its
    tasks, whatever the settings of the process say that goes on with it.

    Raises:
        SessionBusy: the session's last request is under way elsewhere, or waits for an answer.
        ConfigurationError: there is no such session, it belongs to another workspace, or the prompt is empty.
    """
    if not prompt.strip():
        raise ConfigurationError("The prompt is empty. Say what is to be done.")
    workspace = existing_folder(workspace)
    flow = engine.flow(FLOW)
    if isinstance(flow, CodingFlow):
        prompt = flow.hide(prompt)
    data: dict[str, Any] = {
        "prompt": prompt, "workspace": str(workspace), "options": options.to_plain(),
    }  # fmt: skip
    if session is None:
        session = new_session_id(prompt, engine.clock.now())
    else:
        if session == LAST:
            session = await last_session(engine, workspace, folder)
        check_session_id(session)
        data |= await _continued(engine, session, workspace, folder)
    data["session"] = session
    try:
        run_id = await engine.start(
            FLOW, data, tags=[f"session:{session}", workspace_tag(workspace), *tags], budget=budget,
            exclusive=session_key(session), config={STEPS: dict(steps)} if steps else None, drive=drive,
        )  # fmt: skip
    except KeyTaken as taken:
        raise SessionBusy(session, taken.run_id, "has just been given another prompt.") from None
    return Started(run_id, session)


async def last_session(engine: Engine, workspace: Path, folder: SessionFolder | None) -> str:
    """The newest session of a workspace.

    Raises:
        ConfigurationError: there is none.
    """
    async for row in rows_of(
        engine.store, RunQuery(flow=FLOW, tag=workspace_tag(workspace), roots_only=True)
    ):
        session = session_of(row)
        if session is not None and not await _is_gone(engine, session, folder):
            return session
    if folder is not None:
        for listed in folder.list():
            if listed.problem is None and listed.workspace and Path(listed.workspace) == workspace:
                return listed.id
    raise ConfigurationError(f"There is no session in {workspace} yet. Leave --session out to begin one.")


def session_of(row: RunRow) -> str | None:
    """The session that a request belongs to."""
    return next((tag.partition(":")[2] for tag in row.tags if tag.startswith("session:")), None)


async def _is_gone(engine: Engine, session: str, folder: SessionFolder | None) -> bool:
    """Whether a session was deleted and has not been written since."""
    has_file = folder is not None and folder.has(session)
    return not has_file and await is_deleted(engine.store, session)


async def last_run(engine: Engine, session: str) -> Run | None:
    """The latest request of a session in this store."""
    run_id, _ = await engine.store.mark(f"{EXCLUSIVE}{session_key(session)}")
    if run_id is None:
        return None
    try:
        return await engine.get(run_id)
    except RunNotFound:  # removed meanwhile; the session file may still have it
        return None


async def is_interrupted(engine: Engine, run_id: str) -> bool:
    """Whether an open run is under way nowhere."""
    row = await engine.store.row(run_id)
    if row.now.status is not Status.RUNNING or engine.active.driver_of(run_id) is not None:
        return False
    if row.owner is None:
        return True
    return any(worker.id == row.owner for worker in await engine.active.leases.dead()) or not any(
        worker.id == row.owner for worker in await engine.store.workers()
    )


async def _continued(
    engine: Engine, session: str, workspace: Path, folder: SessionFolder | None
) -> dict[str, Any]:
    """What a request goes on from."""
    run = await last_run(engine, session)
    if run is None or await _is_gone(engine, session, folder):
        record = None if folder is None else folder.load(session)
        if record is None:
            raise ConfigurationError(f"There is no session {session}. See: detent sessions list")
        _check_workspace(session, record.workspace, workspace)
        return _from_record(record)
    _check_workspace(session, run.data.get("workspace"), workspace)
    if not run.status.is_end:
        await _close(engine, session, run)
        run = await engine.get(run.id)
    before = RequestData(run.data)
    return {
        "earlier": run.id,
        "turns_before": before.turns_before + before.counter("iterations"),
        "todos": [dict(item) for item in before.todos],
        "seen": dict(before.seen),
    }


def _from_record(record: SessionRecord) -> dict[str, Any]:
    """What a request of a session goes on from that is in no journal here, only in its file."""
    return {
        "from_file": True,
        "turns_before": replies(record.messages),
        "todos": [dict(item) for item in record.todos],
    }


async def _close(engine: Engine, session: str, run: Run) -> None:
    """End the open request of a session, if it was interrupted."""
    if run.status is Status.WAITING:
        hold = next(iter(run.holds.values()), None)
        how = "is waiting"
        if hold is not None:
            verb = "resolve" if hold.name.startswith("effect:") else "release"
            how = f"waits for an answer. Give it first: detent {verb} {run.id}"
        raise SessionBusy(session, run.id, f"{how}" if how.endswith(run.id) else f"{how}.")
    if not await is_interrupted(engine, run.id):
        row = await engine.store.row(run.id)
        raise SessionBusy(
            session,
            run.id,
            f"is being worked on by another process (worker {row.owner}). Follow it: detent show {run.id}",
        )
    try:
        await engine.cancel(run.id, reason=REPLACED)
    except RunStateError:
        return  # it has just ended


def _check_workspace(session: str, own: Any, workspace: Path) -> None:
    if own and Path(str(own)).resolve() != workspace:
        raise ConfigurationError(
            f"Session {session} belongs to the workspace {own}, not to {workspace}. Go there, or begin a new "
            f"session."
        )
