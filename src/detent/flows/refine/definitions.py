"""Refinements that people write: folders with a `refine.py` that makes a flow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from detent.authoring.source_imports import SourceLoader, import_from_source
from detent.flows.refine.flow import RefineFlow
from detent.flows.refine.starter import FILE
from detent.kernel.errors import ConfigurationError
from detent.runtime.plugs import Definitions

if TYPE_CHECKING:
    from detent.engine.flow import Flow


class Refinements(Definitions):
    """The refinements of one project."""

    def claims(self, path: Path) -> bool:
        """Whether a path is a folder with a `refine.py`."""
        return path.is_dir() and (path / FILE).is_file()

    def find(self, target: str) -> Path:
        """The folder at a path."""
        path = (self.settings.folder / target).resolve()
        if not self.claims(path):
            raise ConfigurationError(f"There is no refinement in {target}: a folder with a {FILE} is one.")
        return path

    def flows(self, path: Path, name: str | None = None) -> list[Flow]:
        """The flows that the file of a folder makes, in its order."""
        file = path / FILE
        import_from_source(path)
        loader = SourceLoader(f"detent_refinement_{path.name}", str(file))
        spec = spec_from_file_location(loader.name, file, loader=loader)
        assert spec is not None
        module = module_from_spec(spec)
        try:
            loader.exec_module(module)
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
        flows: list[Flow] = [value for value in vars(module).values() if isinstance(value, RefineFlow)]
        if not flows:
            raise ConfigurationError(
                f"{file} makes no refinement: give a name to what refine_flow(…) returns."
            )
        return flows

    def paths(self, *, shipped: bool = True) -> list[Path]:
        """The folders of the project that are refinements."""
        folder = self.settings.folder
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        return [path for path in inside if not path.name.startswith(".") and self.claims(path)]

    def named(self, name: str) -> list[Flow]:
        """The flows of the folder that makes a flow of this name."""
        for path in self.paths() if not self.project.left_out else ():
            flows = self.flows(path) if path.name == name else []
            if any(flow.name == name for flow in flows):
                return flows
        return []

    def all(self, tell: Callable[[str], None]) -> Iterator[tuple[list[Flow], bool]]:
        """The flows of those folders; `tell` reports broken ones."""
        for path in self.paths():
            try:
                yield self.flows(path), False
            except ConfigurationError as error:
                tell(f"The refinement in {path.name} is left out. {error}")
