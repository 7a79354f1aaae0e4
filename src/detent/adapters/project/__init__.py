"""The project a workflow works on, as tools: its files, programs, repository and tables, and the web."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.adapters.guarded import Guarded
    from detent.adapters.project.rows import Blobs
    from detent.engine.tools import Tool


def project_tools(
    root: Path,
    state: Path,
    *,
    environ: Mapping[str, str] | None = None,
    protected: Iterable[Path] = (),
    blobs: Blobs | None = None,
    webhook: str | None = None,
    notices: Path | None = None,
    allow_private: bool | Iterable[str] | None = None,
    clock: Callable[[], float] = time.time,
    guarded: Guarded | None = None,
) -> list[Tool]:
    """All tools of a project.

    `state` is the folder for backups, spools, notices and notes; `protected` are further paths that actions
    may not touch (the store). `blobs` gives the values steps have offloaded: `store.blob`. `webhook` is where
    `notify.send` posts to. `allow_private` names hosts and networks that are not public and may still be
    fetched from; true for all, false for none, None for this machine where a step names it. `guarded` are
    the files that agents may not write.
    """
    from detent.adapters.guarded import NOTHING
    from detent.adapters.project.addresses import Reach
    from detent.adapters.project.backups import Backups
    from detent.adapters.project.changed_files import Watch
    from detent.adapters.project.effect_notes import EffectNotes
    from detent.adapters.project.files import Files, file_tools
    from detent.adapters.project.git import Git, query_tools
    from detent.adapters.project.git_changes import GitChanges, change_tools
    from detent.adapters.project.http import Web, http_tools
    from detent.adapters.project.notices import Notices, notice_tools
    from detent.adapters.project.patterns import pattern_tools
    from detent.adapters.project.rows import Rows, row_tools
    from detent.adapters.project.sandbox import Sandbox
    from detent.adapters.project.shell import Shell, shell_tools
    from detent.adapters.project.tables import Tables, table_tools

    environment = os.environ if environ is None else environ
    sandbox = Sandbox(root, state, protected, guarded or NOTHING)
    notes, backups, git = EffectNotes(sandbox), Backups(sandbox), Git(sandbox, environment)
    watch = Watch(sandbox, git, backups)
    return [
        *file_tools(Files(sandbox, notes, backups)),
        *pattern_tools(),
        *shell_tools(Shell(sandbox, environment, watch)),
        *query_tools(git),
        *change_tools(GitChanges(git, notes, backups)),
        *http_tools(Web(sandbox, reach=Reach(allow_private))),
        *table_tools(Tables(sandbox)),
        *row_tools(Rows(sandbox, blobs)),
        *notice_tools(Notices(sandbox, notes, webhook, notices, clock)),
    ]
