"""The coding assistant as a plug: the one object that the program loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.runtime.plugs import App

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.runtime.settings import Keys, Settings


class Coding(App):
    """A coding assistant for a workspace.

    It is made from the settings alone: there is no file of its own kind that people write.
    """

    name = "coding"
    flows = ("coding",)
    commands = "detent.flows.coding.commands.group:group"
    top_commands: Mapping[str, str] = {
        "chat": "detent.flows.coding.commands.chat:chat",
        "sessions": "detent.flows.coding.commands.sessions:group",
        "session": "detent.flows.coding.commands.sessions:group",
    }
    run = "detent.flows.coding.commands.run:run"
    suite = "detent.flows.coding.measure.suite:SUITE"
    display = "detent.flows.coding.terminal.ending:DISPLAY"

    def headings(self) -> Mapping[str, Keys]:
        """The heading of its settings."""
        from detent.authoring.heading import heading_keys
        from detent.flows.coding.settings import HEADING, CodingSettings

        return {HEADING: {**heading_keys(CodingSettings), "done_when": None}}

    def files(self, settings: Settings, root: Path) -> Iterator[Path]:
        """Folders of skills inside the project: the assistant follows what stands there."""
        skills = settings.get("coding", "skills", default=[])
        for name in skills if isinstance(skills, list) else ():
            if isinstance(name, str) and (place := (root / name).resolve()).is_relative_to(root):
                yield place

    def programs(self, settings: Settings) -> Mapping[str, Any]:
        """The commands that check a request and run the tests."""
        check = settings.get("coding", "done_when")
        commands = {
            "coding.done_when": check.get("command") if isinstance(check, Mapping) else check,
            "coding.test_command": settings.get("coding", "test_command"),
        }
        # Given to a shell as they are: files among their words are the project's own, and change with it.
        return {name: ["sh", "-c", text] for name, text in commands.items() if isinstance(text, str)}

    def permissions(self, settings: Settings) -> Mapping[str, Any]:
        """What the settings let the assistant do unasked, and what they open to its commands."""
        places = (("tools", "allow"), ("network",), ("sandbox",), ("pass_env",))
        found = {place: settings.get("coding", *place) for place in places}
        wide = {place: value for place, value in found.items() if value not in (None, [])}
        if wide.get(("network",)) is False:
            del wide["network",]
        if wide.get(("sandbox",)) is True:
            del wide["sandbox",]
        return {".".join(("coding", *place)): value for place, value in wide.items()}

    def host_facts(self, settings: Settings) -> Mapping[str, str]:
        """Which sandbox commands run in."""
        import asyncio

        from detent.adapters.project.confinement import confinement

        return {"commands": asyncio.run(confinement()).description}

    def make(self, settings: Settings) -> Iterable[Flow]:
        """The flow."""
        from detent.flows.coding.wiring import coding_flow

        return [coding_flow(settings)]


KIND = Coding()
