"""The coding assistant as a plug: the one object that the program loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

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
