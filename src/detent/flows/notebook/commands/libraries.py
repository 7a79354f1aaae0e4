"""The libraries that a notebook needs, looked for before anything is begun."""

from __future__ import annotations

from importlib.util import find_spec

from detent.kernel.errors import IntegrationMissing

LIBRARIES = (
    "numpy", "pandas", "sklearn", "joblib", "matplotlib", "nbformat", "jupyter_client", "ipykernel",
)  # fmt: skip
KERNEL = ("jupyter_client", "ipykernel", "nbformat")
"""Those that cells need, whatever is in them."""


def require_libraries(names: tuple[str, ...] = LIBRARIES) -> None:
    """Look for libraries without loading them.

    Raises:
        IntegrationMissing: some are not installed.
    """
    missing = [name for name in names if not _is_there(name)]
    if missing:
        raise IntegrationMissing(
            f"Notebooks need {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: pip install 'detent[notebook]'"
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
