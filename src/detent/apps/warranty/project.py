"""A new project: copies of the shipped files for editing, and initial settings."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from detent.apps.warranty.flow import SHIPPED
from detent.insight.formatting import count
from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import Beginning

PACKAGE = "detent.apps.warranty"
COPIED = {
    SHIPPED: "instructions",
    "evals/scenarios": "evals/scenarios",
}
"""Shipped folders, with their place in a project."""
SKIPPED = ("__pycache__", "__init__.py")

CONFIG = """\
# The warranty mailbox. docs/warranty-settings.md describes every key; keys left out keep their default.
# Passwords and keys come from the environment, never from this file.

warranty:
  default_language: en     # en | pl
  timezone: UTC
  contacts:
    - {topic: default, text: "office@northpine.example"}

  mail:
    source: eml            # eml | maildir | imap
    inbox: mail/inbox
    sink: outbox           # outbox | smtp
    outbox: mail/outbox
    from: "Service <service@northpine.example>"
    own_addresses: []
    own_lists: []          # ids of mailing lists this mailbox is on

  tools:
    registry: sqlite       # sqlite | crm
    tickets: sqlite
    database: warranty.db

# One line gives a step to a model, once `model` names one; without it, code does everything.
steps: {}
# steps: {01-extract-serial: {mode: agent, autonomy: collaborator}}
"""


def beginning(folder: Path) -> Beginning:
    """The files of a new project, in a new or empty folder.

    Raises:
        ConfigurationError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} exists and is not empty. Name a new folder.")
    files: dict[Path, str | bytes] = {folder / "config.yaml": CONFIG}
    for shipped, place in COPIED.items():
        source = shipped_folder(shipped)
        for path in sorted(source.rglob("*")):
            if path.is_file() and not set(SKIPPED) & {*path.relative_to(source).parts}:
                files[folder / place / path.relative_to(source)] = path.read_bytes()
    files[folder / "registry.csv"] = demo_registry().read_bytes()
    for sample in sorted(shipped_folder("demo").glob("*.eml")):
        files[folder / "mail/samples" / sample.name] = sample.read_bytes()
    commands = [
        f"cd {folder}",
        "detent trust --always                          (the files are yours to edit)",
        "detent warranty registry import registry.csv   (your devices; a sample is there)",
        "cp mail/samples/*.eml mail/inbox               (mails to try it with)",
        "detent run warranty --once                     (answers every *.eml in mail/inbox)",
        "detent check warranty                          (after you changed step files or templates)",
    ]
    folders = [folder / "mail" / name for name in ("inbox", "outbox", "samples")]
    message = f"A mailbox of {count(len(files), 'file')} is in {folder}."
    return Beginning(files, message, commands, folders=folders, project=folder.absolute())


def make_demo(folder: Path) -> list[Path]:
    """Copy the sample mails into the inbox of a folder; returns them in order."""
    inbox = folder / "mail/inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    mails: list[Path] = []
    for number, source in enumerate(sorted(shipped_folder("demo").glob("*.eml"))):
        target = inbox / source.name
        shutil.copyfile(source, target)
        _settle(target, number)
        mails.append(target)
    return mails


def demo_registry() -> Path:
    """The sample devices."""
    return shipped_folder("demo") / "registry.csv"


def shipped_folder(name: str) -> Path:
    """A folder of the application's own files."""
    return Path(str(resources.files(PACKAGE))) / name


def _settle(file: Path, number: int) -> None:
    """Set a modification time in the past, in order, so that a copy counts as completely written."""
    import os
    import time

    when = time.time() - 3600 + number
    os.utime(file, (when, when))
