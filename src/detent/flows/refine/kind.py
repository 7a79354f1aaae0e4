"""Refinements as a kind of flow: the object that the program loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import Beginning, Kind

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from detent.engine.engine import Engine
    from detent.engine.flow import Flow
    from detent.flows.refine.definitions import Refinements
    from detent.kernel.run import Run
    from detent.runtime.plugs import Project
    from detent.runtime.settings import Settings


class RefineKind(Kind):
    """Folders with a `refine.py`, which makes a flow of four functions."""

    name = "refine"
    templates: Sequence[str] = ("shorten",)

    def definitions(self, project: Project) -> Refinements:
        """The refinements of a project."""
        from detent.flows.refine.definitions import Refinements

        return Refinements(self, project)

    def begin(self, name: str, template: str, settings: Settings) -> Beginning:
        """A refinement that runs as it is, and what it starts from."""
        from detent.flows.refine.starter import FILE, REQUEST, STARTER

        place = Path(name).expanduser()
        if place.exists():
            raise ConfigurationError(f"{name} exists already; name a new folder.")
        shown = quote(place.as_posix())
        request = place / "request.json"
        files = {place / FILE: STARTER.replace("NAME", place.name), request: REQUEST}
        commands = [f"detent run {shown}/ --input {quote(request.as_posix())}", f"detent check {shown}/"]
        return Beginning(files, f"A refinement is in {place}/{FILE}.", commands)

    def lines(self, engine: Engine, flow: Flow) -> AbstractContextManager[Any] | None:
        """Print a line for each state."""
        from detent.flows.refine.flow import RefineFlow
        from detent.flows.refine.run_lines import RefineLines

        if not isinstance(flow, RefineFlow):
            return None
        lines = RefineLines(flow)
        engine.add_observer(lines)
        return lines

    async def tell_ending(self, workspace: Any, engine: Engine, run: Run, told: str | None = None) -> bool:
        """Print how a run ended, its score and its files."""
        from detent.flows.refine.flow import RefineFlow
        from detent.flows.refine.run_lines import tell_ending

        if not isinstance(engine.flows.get(run.flow), RefineFlow) or not run.status.is_end:
            return False
        await tell_ending(workspace, engine, run)
        return True


KIND = RefineKind()
