"""Commands about session files: `sessions list`, `show`, `export`, `delete`, `audit`, `migrate`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, takes
from detent.flows.coding.terminal.session_page import (
    detail_words,
    json_values,
    moment_shown,
    page_of,
    state_shown,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from detent.cli.workspace import Workspace
    from detent.flows.coding.sessions.audit import AuditRow
    from detent.flows.coding.sessions.folder import ListedSession, SessionFolder
    from detent.flows.coding.sessions.record import SessionRecord
    from detent.flows.coding.sessions.redaction import Redaction

group = typer.Typer(
    help="Sessions of the coding assistant, older ones too.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Session = Annotated[str, typer.Argument(metavar="ID", help="A session's id, the beginning of one, or: last.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder in which the sessions lie.")]
LONGEST_PROMPT = 60
"""Columns of a prompt in a listing."""


def _folder(workspace: Workspace) -> SessionFolder:
    """The sessions of the project."""
    from detent.flows.coding.sessions.folder import SessionFolder, sessions_folder
    from detent.flows.coding.settings import coding_settings
    from detent.runtime.settings import secrets_of

    path = sessions_folder(workspace.settings)
    if workspace.settings.of_project("store") or workspace.settings.get("store") is None:
        workspace.require_within(path)  # not the user's own choice
    own = coding_settings(workspace.settings, unknown=False)
    secrets = secrets_of(workspace.settings)
    return SessionFolder(path, secrets=secrets, write_legacy_flags=own.write_legacy_flags)


async def _session(workspace: Workspace, folder: SessionFolder, text: str) -> SessionRecord:
    """The session that a command line means, from its file or, where there is none, from its journals."""
    from detent.flows.coding.sessions.folder import SessionNotFound
    from detent.flows.coding.sessions.in_store import folded, sessions_in
    from detent.kernel.errors import StoreMissing

    try:
        return folder.existing(folder.find(text, Path.cwd()))
    except SessionNotFound as missing:
        try:
            async with workspace.store() as store:
                known = await sessions_in(store)
                matches = [text] if text in known else [name for name in known if name.startswith(text)]
                if len(matches) != 1:
                    raise missing
                return await folded(store, known[matches[0]])
        except StoreMissing:
            raise missing from None


async def _in_store_only(
    workspace: Workspace, folder: SessionFolder, files: Collection[str], limit: int
) -> list[ListedSession]:
    """Sessions whose file is not there: the program was killed before it could be written, say."""
    from detent.cli.output import clean, warn
    from detent.flows.coding.sessions.in_store import folded, sessions_in
    from detent.kernel.errors import DetentError, RunDamaged, RunNotFound, StoreMissing

    found: list[ListedSession] = []
    try:
        async with workspace.store() as store:
            known = await sessions_in(store)
            for name in sorted(known.keys() - set(files), reverse=True)[:limit]:
                with contextlib.suppress(RunNotFound, RunDamaged):  # it is listed by `runs`
                    record = await folded(store, known[name])
                    found.append(folder.listed(record, "", in_store_only=True))
    except StoreMissing:
        pass
    except DetentError as error:
        warn(f"The store was not asked for sessions without a file: {clean(str(error))}")
    return found


# -- list ---------------------------------------------------------------------------------------------------


@group.command("list")
@takes("format", "json", "store", "config")
async def list_(
    options: Options,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="List at most N sessions.")] = 50,
) -> None:
    """List the sessions, newest first; files that cannot be used are listed as such."""
    from detent.cli.output import clean, cut, paint, say, say_plain, table
    from detent.flows.coding.sessions.folder import newest_first

    workspace = options.workspace(looks=True)
    folder = _folder(workspace)
    files = folder.list()
    names = {item.id for item in files}
    every = newest_first([*files, *await _in_store_only(workspace, folder, names, limit)])
    usable = [item for item in every if item.problem is None]
    damaged = [item for item in every if item.problem is not None]
    shown = usable[:limit]
    if not options.as_table:
        say_plain([item.to_plain() for item in [*shown, *damaged]], options.format)
        return
    if not every:
        say(f"There are no sessions in {clean(folder.path)}. Begin one: detent chat")
    elif shown:
        table(
            ("SESSION", "STATE", "OUTCOME", "PROMPT", "TURNS", "CHANGED"),
            [
                (
                    item.id, state_shown(item.state, item.is_complete), item.outcome or "-",
                    cut(clean(item.prompt[: LONGEST_PROMPT * 4]), LONGEST_PROMPT), f"{item.turns:,}",
                    moment_shown(item.changed),
                )
                for item in shown
            ],
            right=(4,),
        )  # fmt: skip
    for item in damaged:
        say(paint(f"{clean(item.file)} cannot be used: it {clean(item.problem)}.", "yellow"))
    if len(usable) > len(shown):
        command = workspace.command("sessions", "list", "--limit", str(len(usable)))
        say(f"{len(usable) - len(shown):,} more: {command}")
    for item in shown:
        if item.in_store_only:
            say(f"{item.id} has no file yet, only its journals; it goes on all the same.")
    if any(item.is_legacy for item in shown):
        say(f"Some are of an older format. To migrate them: detent sessions migrate {_quoted(folder.path)}")


# -- one ----------------------------------------------------------------------------------------------------


@group.command("show")
@takes("format", "json", "store", "config")
async def show(options: Options, session: Session) -> None:
    """Show a session: where it is, and what was said."""
    from detent.cli.output import say, say_plain

    workspace = options.workspace(looks=True)
    folder = _folder(workspace)
    record = await _session(workspace, folder, session)
    plain = folder.plain(record)
    if not options.as_table:
        say_plain(json_values(plain), options.format)
        return
    for line in page_of(record, plain):
        say(line)


@group.command("export")
@takes("store", "config")
async def export(
    options: Options,
    session: Session,
    legacy: Annotated[
        bool, typer.Option("--legacy", help="In the form with booleans, for older programs.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Write it there; an existing file stays.")
    ] = None,
) -> None:
    """Print a session as JSON, without secrets."""
    import sys

    from detent.adapters.disk import open_private
    from detent.cli.output import warn
    from detent.flows.coding.sessions.export import legacy_form
    from detent.flows.coding.sessions.files import file_bytes
    from detent.kernel.errors import ConfigurationError

    workspace = options.workspace(looks=True)
    folder = _folder(workspace)
    record = await _session(workspace, folder, session)
    plain = folder.redaction.session(legacy_form(record)) if legacy else folder.plain(record)
    raw = file_bytes(plain)
    if to is None:
        sys.stdout.write(raw.decode("utf-8"))
        sys.stdout.flush()
        return
    try:
        with open_private(to, "xb") as file:
            file.write(raw)
    except FileExistsError:
        raise ConfigurationError(f"{to} exists already; name another file.") from None
    except OSError as error:
        raise ConfigurationError(f"{to} cannot be written: {error.strerror}.") from None
    warn(f"Written to {to}.")


@group.command("delete")
@takes("json", "store", "config")
async def delete(
    options: Options,
    session: Annotated[str, typer.Argument(metavar="ID", help="A session's id, or the beginning of one.")],
) -> None:
    """Remove a session: its file is deleted, and nothing goes on with it. The journals of its runs remain."""
    from detent.cli.output import clean, say, say_json

    workspace = options.workspace()
    folder = _folder(workspace)
    session_id = folder.find(session)
    runs, is_open = await _delete_in_store(workspace, session_id)
    originals = [str(path) for path in folder.delete(session_id)]
    if options.json:
        say_json({"deleted": session_id, "runs": runs, "open": is_open, "originals": originals})
        return
    say(f"Session {clean(session_id)} is removed.")
    for path in originals:
        say(f"The original of an older format is still there, as it was: {clean(path)}")
    if is_open:
        say("Its last run is open. If it is resumed, the session is there again.")
    if runs:
        more = f" and {len(runs) - 3:,} more" if len(runs) > 3 else ""
        say(f"The journals of its runs remain, with what was said in them: {', '.join(runs[:3])}{more}.")
        say("`detent purge RUN` drops the long texts kept beside a journal; the journal itself stays.")


async def _delete_in_store(workspace: Workspace, session_id: str) -> tuple[list[str], bool]:
    """Note in the store that a session is deleted; its runs, the last one first, and whether one is open."""
    from detent.engine.journal_reader import rows_of
    from detent.engine.ports import RunQuery
    from detent.flows.coding.sessions.in_store import note_deleted
    from detent.kernel.errors import StoreMissing

    query = RunQuery(tag=f"session:{session_id}", roots_only=True, tolerant=True)
    try:
        async with workspace.store() as store:
            rows = [row async for row in rows_of(store, query)]
            await note_deleted(store, session_id)
    except StoreMissing:
        return [], False
    return [row.id for row in rows], any(not row.now.status.is_end for row in rows)


# -- older sessions -----------------------------------------------------------------------------------------


@group.command("audit")
@takes("format", "json", "config")
def audit(options: Options, folder: Folder) -> None:
    """List what every file of a folder is, and what older sessions would become. Nothing is changed."""
    from detent.cli.output import say
    from detent.flows.coding.sessions.audit import audit as look

    redaction = _folder(options.workspace(looks=True)).redaction
    rows = [_cleared(row, redaction) for row in look(folder)]
    if _print_rows(options, rows):
        return
    if any(row.kind == "legacy" for row in rows):
        say(f"To migrate them: detent sessions migrate {_quoted(folder)}")


@group.command("migrate")
@takes("format", "json", "config")
def migrate(
    options: Options,
    folder: Folder,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write there instead, and leave the files as they are."),
    ] = None,
    into_project: Annotated[
        bool,
        typer.Option("--into-project", help="Write them among this project's sessions, to go on with."),
    ] = False,
) -> int:
    """Migrate older sessions to the present format. The originals are kept, as .bak files.

    Exit code 1: there are files that could not be migrated.
    """
    from detent.cli.output import clean, say
    from detent.flows.coding.sessions.audit import Migration
    from detent.kernel.errors import ConfigurationError

    if into_project and out is not None:
        raise ConfigurationError("Give --out or --into-project, not both.")
    sessions = _folder(options.workspace(looks=not into_project))
    target = sessions.path if into_project else out
    migration = Migration(folder, target, sessions, flat=into_project)
    rows = [_cleared(row, sessions.redaction) for row in migration.run()]
    failed = [row for row in rows if row.done == "failed"]
    damaged = [row for row in rows if row.kind == "damaged"]
    if not _print_rows(options, rows, done=True):
        if any(row.backup for row in rows):
            say("The originals lie beside them as .bak files, unchanged; secrets are still in those.")
        for row in failed:
            say(f"Not migrated: {clean(row.file)} ({clean(row.detail)})")
        if damaged:
            say(f"Not migrated: {_number(len(damaged), 'damaged file')}, left as found.")
        place = folder if out is None else out
        if not into_project and place.absolute() != sessions.path.absolute():
            say(f"To go on with them here, they must be in {clean(sessions.path)}: see --into-project.")
    return 1 if failed or damaged else 0


def _cleared(row: AuditRow, redaction: Redaction) -> AuditRow:
    """A row without the secrets that odd values of a file may hold."""
    from dataclasses import replace

    detail = None if row.detail is None else redaction.text(row.detail)
    return replace(row, detail=detail, flags=redaction.value(dict(row.flags)))


def _print_rows(options: Options, rows: list[AuditRow], *, done: bool = False) -> bool:
    """Print files and how many there are of each sort; True if that was for a program."""
    from detent.cli.output import say, say_plain, table
    from detent.flows.coding.sessions.audit import counts

    total = counts(rows)
    if not options.as_table:
        plain = {"files": [json_values(row.to_plain()) for row in rows], "counts": total}
        say_plain(plain, options.format)
        return True
    cells = [_cells(row, done) for row in rows if not done or row.done != "unchanged" or _is_trouble(row)]
    if cells:
        table(("FILE", "DONE" if done else "KIND", "STATE", "OUTCOME", "REASON", "DETAIL"), cells)
    say(f"{_number(total['files'], 'file')}: {_listed(total['by_kind'])}.")
    if total["by_reason"]:
        say(f"Older sessions by reason: {_listed(total['by_reason'])}; {total['ambiguous']:,} ambiguous.")
    if done:
        say(f"Migration: {_listed(total.get('done', {}))}.")
    return False


def _is_trouble(row: AuditRow) -> bool:
    return row.kind in ("damaged", "newer")


def _cells(row: AuditRow, done: bool) -> list[str]:
    state = "-" if row.state is None else state_shown(row.state, bool(row.is_complete))
    ambiguous = " (ambiguous)" if row.ambiguous and row.reason != "ambiguous" else ""
    reason = f"{(row.reason or '-').replace('_', ' ')}{ambiguous}"
    second = str(row.done) if done and not _is_trouble(row) else row.kind.replace("_", " ")
    return [row.file, second, state, row.outcome or "-", reason, detail_words(row.detail)]


def _listed(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in numbers.items()) or "none"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _quoted(path: Path) -> str:
    import shlex

    from detent.cli.output import clean

    return clean(shlex.quote(str(path)))
