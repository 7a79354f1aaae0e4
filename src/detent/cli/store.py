"""Commands about the store itself: `store check`, `store backup`, `store restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from pathlib import Path

    from detent.cli.workspace import Workspace

store = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Check, back up and restore the store.",
)


def add(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.add_typer(store, name="store", rich_help_panel="This installation")


@store.command()
@takes("json", "store", "config")
def check(options: Options) -> int:
    """Read the whole store and list what is damaged.

    Looks at the files and their log, at every journal and whether the run's row agrees with it, and at the
    values kept beside journals. Exits with 1 when something is damaged.
    """
    from detent.cli.output import clean, say, say_json
    from detent.cli.workspace import run_async
    from detent.runtime.store_health import deep_check, require_store
    from detent.runtime.store_url import shown_url, store_url

    workspace = options.workspace(looks=True)
    closed = workspace.closed_store()
    require_store(closed)
    place = shown_url(store_url(workspace.settings))
    problems = [need.what for need in run_async(deep_check(closed))]
    if options.json:
        say_json({"place": place, "whole": not problems, "problems": problems})
    elif not problems:
        say(f"{clean(place)} is whole.")
    else:
        for problem in problems:
            say(clean(problem))
        say("What to do: restore a backup (detent store restore FILE); docs/stores.md says more.")
    return 1 if problems else 0


@store.command()
@takes("store", "config")
def backup(
    options: Options,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file to write the copy to.")],
) -> None:
    """Copy the store to a new file while other processes keep writing."""
    from pathlib import Path

    from detent.adapters.stores.sqlite import SQLiteStore
    from detent.cli.output import clean, say, size
    from detent.cli.workspace import run_async

    workspace = options.workspace(looks=True)
    _file_of(workspace)
    target = Path(file)

    async def copy() -> None:
        async with workspace.store() as opened:
            assert isinstance(opened, SQLiteStore)
            await opened.backup(target)

    run_async(copy())
    say(f"{clean(str(target))}: {size(target.stat().st_size)}.")


@store.command()
@takes("store", "config")
def restore(
    options: Options,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A backup, or a rescued file.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing store; the old one is kept.")
    ] = False,
) -> None:
    """Restore the store from a backup.

    A store that is there is kept under another name, which is shown.
    """
    from pathlib import Path

    from detent.adapters.stores.sqlite_backup import restore as put_back
    from detent.cli.output import clean, say

    workspace = options.workspace()
    path = _file_of(workspace)
    restored = put_back(Path(file), path, force=force)
    say(f"{clean(str(path))} was restored from {clean(file)}.")
    if restored.aside is not None:
        say(f"The store that was there is kept as {clean(str(restored.aside))}.")
    if restored.backup != Path(file):
        say(f"The rescued file is kept as {clean(str(restored.backup))}.")
    say(f"To go on with interrupted runs: {clean(workspace.command('resume', '--all'))}")


def _file_of(workspace: Workspace) -> Path:
    """The file of a SQLite store; for another kind of store, an error explains how to copy it."""
    from detent.runtime.store_health import store_file

    return store_file(workspace.settings)
