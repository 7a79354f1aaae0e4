"""A project of one's own: copies of everything that ships and may be edited, and settings to begin with."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from detent.adapters.disk import private_folder
from detent.apps.warranty.flow import SHIPPED
from detent.kernel.errors import ConfigurationError

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


def make_project(folder: Path) -> int:
    """Fill a new or empty folder; gives how many files there are. Nothing that is there is touched."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(f"{folder} is there and not empty. Name a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for shipped, place in COPIED.items():
            source = shipped_folder(shipped)
            if source.is_dir():
                shutil.copytree(
                    source, folder / place, ignore=shutil.ignore_patterns(*SKIPPED), dirs_exist_ok=True
                )
        (folder / "config.yaml").write_text(CONFIG, encoding="utf-8")
        shutil.copyfile(shipped_folder("demo") / "registry.csv", folder / "registry.csv")
        for name in ("inbox", "outbox", "samples"):
            private_folder(folder / "mail" / name)
        for sample in sorted(shipped_folder("demo").glob("*.eml")):
            shutil.copyfile(sample, folder / "mail/samples" / sample.name)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be filled: {error.strerror}.") from error
    return sum(1 for path in folder.rglob("*") if path.is_file())


def make_demo(folder: Path) -> list[Path]:
    """Put the sample mails into the inbox of a folder; gives them in order."""
    inbox = folder / "mail/inbox"
    inbox.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for number, source in enumerate(sorted(shipped_folder("demo").glob("*.eml"))):
        target = inbox / source.name
        shutil.copyfile(source, target)
        _settle(target, number)
        made.append(target)
    return made


def demo_registry() -> Path:
    """The sample devices."""
    return shipped_folder("demo") / "registry.csv"


def shipped_folder(name: str) -> Path:
    """A folder of the application's own files."""
    return Path(str(resources.files(PACKAGE))) / name


def _settle(file: Path, number: int) -> None:
    """Give a copy a time that is past, one after the other, so that it is taken for a finished mail."""
    import os
    import time

    when = time.time() - 3600 + number
    os.utime(file, (when, when))
