"""The warranty mailbox as an application: the one object the program knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from detent.runtime.plugs import App, Beginning, KeyUse

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.runtime.settings import Keys, Settings


class Warranty(App):
    """A service mailbox: check warranties, open tickets, answer."""

    name = "warranty"
    flows = ("warranty", "warranty-legacy")
    commands = "detent.apps.warranty.commands.group:group"
    run = "detent.apps.warranty.commands.run:run"
    suite = "detent.apps.warranty.evals:suite"
    templates = ("mailbox",)

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """A project folder: step files, templates, settings, cases, sample mails."""
        from detent.apps.warranty.project import beginning

        return beginning(Path(name))

    def headings(self) -> Mapping[str, Keys]:
        """The headings of its settings."""
        from detent.apps.warranty.own_heading import headings

        return headings()

    def files(self, settings: Settings, root: Path) -> Iterator[Path]:
        """Step files, templates, scenarios and overlays of the settings, inside the project's folder."""
        from detent.apps.warranty.own_heading import lifted

        playbook = lifted(settings).get("playbook", default={})
        playbook = playbook if isinstance(playbook, Mapping) else {}
        overlays = playbook.get("overlays")
        names = [playbook.get(key) for key in ("steps_dir", "templates_dir", "scenarios_dir")]
        names += overlays if isinstance(overlays, list) else []
        for name in names:
            if isinstance(name, str) and (place := (root / name).resolve()).is_relative_to(root):
                yield place

    def keys(self, settings: Settings) -> Iterator[KeyUse]:
        """Names and passwords of its mail servers and of the CRM."""
        from detent.apps.warranty.own_heading import lifted
        from detent.runtime.key_hosts import host_of, mail_keys

        settings = lifted(settings)
        yield from mail_keys(settings, "detent.apps.warranty.settings:Mail")
        crm = settings.get("tools", "crm", default={})
        crm = crm if isinstance(crm, Mapping) else {}
        host = host_of(str(crm.get("base_url") or ""))
        for key in ("user", "password") if host and crm.get("auth") != "none" else ():
            from detent.apps.warranty.settings import Crm

            variable = str(crm.get(f"{key}_env") or Crm.model_fields[f"{key}_env"].default)
            yield KeyUse(variable, host, "tools.crm", settings.of_project("tools", "crm"))

    def configured(self, settings: Settings) -> bool:
        """Whether the project has its heading, or parts of it at the top."""
        from detent.apps.warranty.own_heading import at_the_top

        return super().configured(settings) or bool(at_the_top(settings))

    def make(self, settings: Settings) -> Iterable[Flow]:
        """The flows of the mailbox, for their runs in a store."""
        from detent.apps.warranty.mailbox import flows

        return flows(settings)


APP = Warranty()
