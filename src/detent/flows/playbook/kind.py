"""Playbooks as a kind of flow: the object that the program loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import Beginning, Kind

if TYPE_CHECKING:
    from detent.flows.playbook.library import Playbooks
    from detent.runtime.plugs import KeyUse, Project
    from detent.runtime.settings import Settings

MANIFEST = "playbook.yaml"
"""In a folder that is itself a playbook."""
TEXTS = ("steps", "templates", "sentences")
"""Folders beside the manifest."""


class PlaybookKind(Kind):
    """Folders of Markdown files, one per step."""

    name = "playbook"
    schema = "detent.flows.playbook.folder:json_schema"
    commands = "detent.flows.playbook.commands:playbook"
    suite = "detent.flows.playbook.evals:suite"
    templates = ("three-steps",)

    def folders(self) -> Sequence[str]:
        """The folder in which playbooks are found by name, and the one in which applications keep theirs."""
        return ("playbooks", "instructions")

    def files(self, settings: Settings, root: Path) -> Iterator[Path]:
        """The files of the project's folder, if it is itself a playbook."""
        if (root / MANIFEST).is_file():
            yield root / MANIFEST
            yield from (root / name for name in TEXTS)
            yield from sorted(root.glob("*.py"))

    def passive(self, root: Path) -> Iterator[Path]:
        """The same files, if the playbook has no code."""
        from detent.runtime.project_files import files_below

        if (root / MANIFEST).is_file() and not any(root.glob("*.py")):
            texts = [file for name in TEXTS for file in files_below(root / name)]
            if not any(file.suffix == ".py" for file in texts):
                yield from (root / MANIFEST, *texts)

    def keys(self, settings: Settings) -> Iterator[KeyUse]:
        """Name and password of the server that sends mail."""
        from detent.runtime.key_hosts import mail_keys

        return mail_keys(settings, "detent.adapters.mail.settings:MailSettings")

    def definitions(self, project: Project) -> Playbooks:
        """The playbooks of a project."""
        from detent.flows.playbook.library import Playbooks

        return Playbooks(self, project)

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """Three small steps, a sample input and a case, in a folder that is new or empty."""
        from detent.flows.playbook.starter import NEW

        place = Path(name).expanduser()
        if place.exists() and not place.is_dir():
            raise ConfigurationError(f"{name} is a file; name a folder that is new or empty.")
        if place.is_dir() and any(place.iterdir()):
            raise ConfigurationError(f"{name} holds something already; name a folder that is new or empty.")
        shown = quote(place.as_posix())
        commands = [
            f"detent playbook check {shown}",
            f"detent run playbook {shown} --input {quote((place / 'input.json').as_posix())}",
            f"detent eval {shown}",
        ]
        files = {place / file: text for file, text in NEW.items()}
        return Beginning(files, f"A playbook of three steps is in {place}.", commands)


KIND = PlaybookKind()
