"""The place of this application's settings: under its own heading or, as before, at the top of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from detent.apps.warranty.settings import HEADINGS
from detent.authoring.heading import heading_keys

if TYPE_CHECKING:
    from detent.runtime.settings import Keys, Settings

HEADING = "warranty"
PARTS = tuple(name for name in HEADINGS if name not in (HEADING, "eval"))
"""Parts of the settings under the heading; `eval` is shared by all suites."""
SHARED = "mail"
"""At the top it configures the mail of the whole project, so there is no hint to move it."""

T = TypeVar("T")


def headings() -> dict[str, Keys]:
    """The heading with its keys, and the parts that are still allowed at the top."""
    parts: dict[str, Any] = {part: heading_keys(HEADINGS[part]) for part in PARTS}
    return {
        **parts,
        HEADING: {**heading_keys(HEADINGS[HEADING]), **parts},
        "eval": heading_keys(HEADINGS["eval"]),
    }


def lifted(settings: Settings) -> Settings:
    """The settings with the parts under the heading merged over those at the top, key by key. Values from the
    environment, in either spelling, take precedence."""
    heading = settings.values.get(HEADING)
    parts = [part for part in PARTS if isinstance(heading, Mapping) and part in heading]
    if not parts:
        return settings
    assert isinstance(heading, Mapping)
    values = {**settings.values, HEADING: {key: value for key, value in heading.items() if key not in parts}}
    for part in parts:
        values[part] = _merge(settings, (part,), settings.values.get(part), heading[part])
    return replace(
        settings, values=values, places=_moved(settings.places, parts), bases=_moved(settings.bases, parts),
        project=frozenset(_moved(dict.fromkeys(settings.project), parts)),
    )  # fmt: skip


def at_the_top(settings: Settings) -> list[str]:
    """Parts at the top of the project file that belong under the heading."""
    return [part for part in PARTS if part != SHARED and settings.of_project(part)]


def _merge(settings: Settings, keys: tuple[str, ...], below: Any, above: Any) -> Any:
    """One value merged over another, key by key."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        own = settings.by_variable(HEADING, *keys)
        return below if settings.by_variable(*keys) and not own else above
    inner = {key: _merge(settings, (*keys, key), below.get(key), value) for key, value in above.items()}
    return {**below, **inner}


def _moved(by_keys: Mapping[tuple[str, ...], T], parts: list[str]) -> dict[tuple[str, ...], T]:
    """Values by path of keys, with the paths of these parts moved one level up."""
    inner = {keys for keys in by_keys if keys[0] == HEADING and keys[1:2] and keys[1] in parts}
    unmoved = {keys: value for keys, value in by_keys.items() if keys not in inner}
    return unmoved | {keys[1:]: by_keys[keys] for keys in inner}
