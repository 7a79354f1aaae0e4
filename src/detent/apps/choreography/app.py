"""The light-show choreographer as an application: the one object the program knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from detent.runtime.plugs import App, Beginning

if TYPE_CHECKING:
    from detent.engine.flow import Flow
    from detent.runtime.settings import Keys, Settings


class Choreography(App):
    """A song in, an xLights sequence for DMX moving heads out."""

    name = "choreography"
    flows = ("choreography",)
    commands = "detent.apps.choreography.commands.group:group"
    run = "detent.apps.choreography.commands.run:run"
    display = "detent.apps.choreography.commands.ending:DISPLAY"
    templates = ("show",)

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """A folder with a rig, settings and a song to try it with."""
        from detent.apps.choreography.starter import beginning

        return beginning(Path(name))

    def headings(self) -> Mapping[str, Keys]:
        """The heading of its settings."""
        from detent.apps.choreography.settings import HEADING, JobConfig
        from detent.authoring.heading import heading_keys

        return {HEADING: heading_keys(JobConfig)}

    def files(self, settings: Settings, root: Path) -> Iterator[Path]:
        """The rig and the templates that the settings name, inside the project's folder."""
        own = settings.get(self.name, default={})
        own = own if isinstance(own, Mapping) else {}
        folders = own.get("template_dirs")
        names = [own.get("fixture_config_path"), *(folders if isinstance(folders, list) else [])]
        for name in names:
            if isinstance(name, str) and (place := (root / name).resolve()).is_relative_to(root):
                yield place

    def make(self, settings: Settings) -> Iterable[Flow]:
        """The flow of a show."""
        from detent.apps.choreography.flow import show_flow
        from detent.apps.choreography.settings import job_config

        return [show_flow(job_config(settings), settings)]


APP = Choreography()
