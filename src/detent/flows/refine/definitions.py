"""Refinements that people write: folders with a `refine.py` that makes a flow.

They are code, so they are found by their path alone: nothing is executed that nobody has named.
"""

from __future__ import annotations

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
    """The refinements in one project."""

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
