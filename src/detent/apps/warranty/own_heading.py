"""Where this application's settings stand: under its own heading, or as before at the top of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from detent.apps.warranty.settings import HEADINGS
from detent.authoring.heading import heading_keys
from detent.runtime.settings import PREFIX

if TYPE_CHECKING:
    from detent.runtime.settings import Keys, Settings

HEADING = "warranty"
PARTS = tuple(name for name in HEADINGS if name not in (HEADING, "eval"))
"""Parts of the settings that stand under the heading; `eval` is every suite's."""
SHARED = "mail"
"""At the top it means mail of the whole project, so nobody is told to move it."""

T = TypeVar("T")


def headings() -> dict[str, Keys]:
    """The heading with the keys allowed there, and the parts that may still stand at the top."""
    parts: dict[str, Any] = {part: heading_keys(HEADINGS[part]) for part in PARTS}
    return {
        **parts,
        HEADING: {**heading_keys(HEADINGS[HEADING]), **parts},
        "eval": heading_keys(HEADINGS["eval"]),
    }


def lifted(settings: Settings) -> Settings:
    """The settings with the parts under the heading in the place of those at the top, key by key; what the
    environment says, in either spelling, stays the strongest."""
    said = settings.values.get(HEADING)
    parts = [part for part in PARTS if isinstance(said, Mapping) and part in said]
    if not parts:
        return settings
    assert isinstance(said, Mapping)
    values = {**settings.values, HEADING: {key: value for key, value in said.items() if key not in parts}}
    for part in parts:
        values[part] = _over(settings, (part,), settings.values.get(part), said[part])
    return replace(
        settings, values=values, places=_moved(settings.places, parts), bases=_moved(settings.bases, parts),
        project=frozenset(_moved(dict.fromkeys(settings.project), parts)),
    )  # fmt: skip


def at_the_top(settings: Settings) -> list[str]:
    """Parts that the project file has at the top and that belong under the heading."""
    return [part for part in PARTS if part != SHARED and settings.of_project(part)]


def _over(settings: Settings, way: tuple[str, ...], below: Any, above: Any) -> Any:
    """One value laid over another, key by key."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        environment = settings.place(*way).startswith(PREFIX)
        return below if environment and not settings.place(HEADING, *way).startswith(PREFIX) else above
    inner = {key: _over(settings, (*way, key), below.get(key), value) for key, value in above.items()}
    return {**below, **inner}


def _moved(ways: Mapping[tuple[str, ...], T], parts: list[str]) -> dict[tuple[str, ...], T]:
    """Ways through the headings, with those to these parts one level up."""
    inner = {way for way in ways if way[0] == HEADING and way[1:2] and way[1] in parts}
    kept = {way: value for way, value in ways.items() if way not in inner}
    return kept | {way[1:]: ways[way] for way in inner}
