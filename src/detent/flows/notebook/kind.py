"""Notebooks as a plug: the one object that the program loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from detent.runtime.plugs import App, Purged

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.engine.ports import Store
    from detent.runtime.settings import Keys, Settings


class Notebook(App):
    """A data-science notebook that builds itself.

    It is made from the settings alone: there is no file of its own kind that people write.
    """

    name = "notebook"
    flows = ("notebook",)
    commands = "detent.flows.notebook.commands.group:group"
    run = "detent.flows.notebook.commands.run:run"
    display = "detent.flows.notebook.commands.display:DISPLAY"

    def headings(self) -> Mapping[str, Keys]:
        """The heading of its settings."""
        from detent.authoring.heading import heading_keys
        from detent.flows.notebook.settings import HEADING, NotebookSettings

        return {HEADING: heading_keys(NotebookSettings)}

    async def purge(
        self, settings: Settings, store: Store, run_id: str | None, before: float | None
    ) -> Purged:
        """Delete work folders."""
        from detent.flows.notebook.work_folder import purge_folders

        return await purge_folders(settings.folder, store, self.flows[0], run_id, before)

    def make(self, settings: Settings) -> Iterable[Flow]:
        """The flow."""
        from detent.flows.notebook.flow import NotebookFlow
        from detent.flows.notebook.settings import notebook_settings

        return [NotebookFlow(notebook_settings(settings, unknown=False))]


KIND = Notebook()
