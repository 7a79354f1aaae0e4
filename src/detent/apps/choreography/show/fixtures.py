"""Moving heads: their DMX channels, wheels, ranges and limits, read from YAML, and degrees as DMX values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from detent.apps.choreography.domain.plan import Channels, Part
from detent.apps.choreography.domain.vocabulary import COLOURS, GOBOS, SHUTTERS
from detent.apps.choreography.show.xml_tree import XmlRefused, parse_xml
from detent.apps.choreography.show.xsq_reader import OUR_TRACKS
from detent.authoring.document import Document, below, file_bytes, read_document
from detent.authoring.model import ModelReader, Written, kind_of
from detent.authoring.problem import DocumentError, Problem
from detent.kernel.errors import ConfigurationError

ROLES = ("pan", "pan_fine", "tilt", "tilt_fine", "dimmer", "shutter", "color", "gobo")
NEEDED = ("pan", "tilt", "dimmer")
"""Roles without which a head cannot be aimed or lit."""
MOST_CHANNELS = 48
"""Channels that an xLights DMX effect can set."""
PAGE = 16
MOST_DEGREES = 3600
"""Degrees that a range, limit or offset may have: ten turns."""
_TOO_FAR = f"Degrees are -{MOST_DEGREES} to {MOST_DEGREES}."
LONGEST_NAME = 200
VOCABULARIES: dict[str, Mapping[str, Any]] = {"shutter": SHUTTERS, "color": COLOURS, "gobo": GOBOS}

Dmx = Annotated[int, Field(ge=0, le=255)]
Range = tuple[float, float]


class Orientation(Part):
    """How a head is mounted."""

    pan_offset: float = 0.0
    tilt_offset: float = 0.0
    pan_invert: bool = False
    tilt_invert: bool = False


class Limits(Part):
    """Degrees a head must not leave, before offset and inversion."""

    pan: Range = (-120, 120)
    tilt: Range = (-30, 100)


class Maps(Part):
    """A fixture's own DMX values by name. An empty map stands for the usual values."""

    shutter: dict[str, Dmx] = Field(default_factory=dict)
    color: dict[str, Dmx] = Field(default_factory=dict)
    gobo: dict[str, Dmx] = Field(default_factory=dict)


class Missing(NamedTuple):
    """A name that a head's map lacks."""

    channel: str
    name: str
    instead: str
    """What is sent in its place, as the end of a sentence."""

    def warning(self, heads: Collection[str]) -> str:
        """One sentence, however many heads it is about."""
        lack = "have" if len(heads) > 1 else "has"
        return f"{', '.join(heads)} {lack} no {self.channel} '{self.name}': {self.instead}."


class Fixture(Part):
    """One moving head."""

    fixture_id: str
    xlights_model_name: str
    channel_count: int = Field(16, ge=1, le=MOST_CHANNELS)
    dmx_mapping: dict[str, int] = Field(
        default_factory=lambda: {
            "pan": 1, "pan_fine": 2, "tilt": 3, "tilt_fine": 4,
            "dimmer": 6, "shutter": 7, "color": 8, "gobo": 9,
        }
    )  # fmt: skip
    """Channel by role; channels count from 1."""
    maps: Maps = Maps()
    pan_range: Range = (-270, 270)
    """Degrees at DMX 0 and 255."""
    tilt_range: Range = (-135, 135)
    orientation: Orientation = Orientation()
    limits: Limits = Limits()
    defaults: dict[int, Dmx] = Field(default_factory=dict)
    """Values of channels without a role."""

    @property
    def written_channels(self) -> int:
        """Channels in an effect: whole pages."""
        return -(-self.channel_count // PAGE) * PAGE

    def axis_dmx(self, axis: Literal["pan", "tilt"], degrees: Any) -> Any:
        """Degrees, one number or an array, as unrounded DMX values inside limits and range."""
        import numpy as np

        low, high = getattr(self, f"{axis}_range")
        sign = -1 if getattr(self.orientation, f"{axis}_invert") else 1
        offset = getattr(self.orientation, f"{axis}_offset")
        inside = np.clip(degrees, *getattr(self.limits, axis))
        return np.clip(255 * (inside * sign + offset - low) / (high - low), 0, 255)

    def dmx(self, axis: Literal["pan", "tilt"], degrees: float) -> int:
        """Degrees as the DMX value that is sent."""
        return round(float(self.axis_dmx(axis, degrees)))

    def channel_value(self, channel: str, name: str) -> tuple[int, Missing | None]:
        """DMX value of a shutter, colour or gobo, and what is missing where another one stands in for it."""
        own: Mapping[str, int] = getattr(self.maps, channel)
        usual = VOCABULARIES[channel]
        if name in own:
            return own[name], None
        if not own:
            return usual[name].dmx, None
        if channel == "shutter":  # a stand-in could leave a closed head lit
            value = usual[name].dmx
            return value, Missing(channel, name, f"the usual {value} is used")
        nearest = min(own, key=lambda other: (_distance(channel, name, other), other))
        return own[nearest], Missing(channel, name, f"'{nearest}' is used, the nearest there is")

    def constants(self, channels: Channels) -> tuple[dict[int, int], list[Missing]]:
        """DMX values, by channel, that hold throughout a section, and what the maps lack for it."""
        values = {self.dmx_mapping[role]: 0 for role in ("pan_fine", "tilt_fine") if role in self.dmx_mapping}
        values |= self.defaults
        missing: list[Missing] = []
        for role in VOCABULARIES:
            if role in self.dmx_mapping:
                value, lack = self.channel_value(role, getattr(channels, role))
                values[self.dmx_mapping[role]] = value
                missing += [lack] if lack else []
        return values, missing


class Rig(Part):
    """The heads from left to right."""

    fixtures: tuple[Fixture, ...] = Field(min_length=1)
    group_id: str = "MOVING_HEADS"

    def __len__(self) -> int:
        return len(self.fixtures)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Rig:
        """Read back what `to_plain` wrote."""
        return cls.model_validate(plain)

    @classmethod
    def of_heads(cls, heads: int) -> Rig:
        """A rig of ordinary heads named MH1, MH2, …"""
        numbers = range(1, heads + 1)
        return cls(
            fixtures=tuple(
                Fixture(fixture_id=f"MH{number}", xlights_model_name=f"Dmx MH{number}") for number in numbers
            )
        )


DEFAULT_RIG = Rig.of_heads(4)


def _distance(channel: str, name: str, other: str) -> tuple[float, ...]:
    """How far a stand-in is from the name: other mood last, then by look; gobos by density."""
    if channel == "gobo":
        return (abs(GOBOS[name].density - GOBOS[other].density),)
    wanted, offered = COLOURS[name], COLOURS[other]
    parts = [(int(wanted.hex[at : at + 2], 16) - int(offered.hex[at : at + 2], 16)) ** 2 for at in (1, 3, 5)]
    return (wanted.mood != offered.mood, sum(parts))


# -- reading ------------------------------------------------------------------------------------------------

_MAPPING, _PAIR = "a mapping", "two numbers in brackets, the lower first"


@dataclass(frozen=True)
class _RigFile:
    group_id: Annotated[str | None, Written("a name", "Name of the group in xLights.", str)] = None
    fixtures: Annotated[
        list[Any] | None, Written("a list of heads", "Heads from left to right.", list[Any], required=True)
    ] = None


@dataclass(frozen=True)
class _Row:
    fixture_id: Annotated[str, Written("a name", "Name of the head.", str, required=True)]
    xlights_model_name: Annotated[str, Written("a name", "The model in xLights.", str, required=True)]
    config: Annotated[dict[str, Any] | None, Written(_MAPPING, "Channels and ranges.", dict[str, Any])] = None


@dataclass(frozen=True)
class _Config:
    channel_count: Annotated[
        int | None,
        Written("a whole number from 1 to 48", "DMX channels.", Annotated[int, Field(ge=1, le=48)]),
    ] = None
    dmx_mapping: Annotated[dict[str, Any] | None, Written(_MAPPING, "Channel by role.", dict[str, Any])] = (
        None
    )
    maps: Annotated[dict[str, Any] | None, Written(_MAPPING, "Wheel values.", dict[str, Any])] = None
    pan_range: Annotated[Any, Written(_PAIR, "Degrees at DMX 0 and 255.", list[float])] = None
    tilt_range: Annotated[Any, Written(_PAIR, "Degrees at DMX 0 and 255.", list[float])] = None
    orientation: Annotated[dict[str, Any] | None, Written(_MAPPING, "Mounting.", dict[str, Any])] = None
    limits: Annotated[dict[str, Any] | None, Written(_MAPPING, "Degrees not to leave.", dict[str, Any])] = (
        None
    )
    defaults: Annotated[dict[str, Any] | None, Written(_MAPPING, "Other channels.", dict[str, Any])] = None


@dataclass(frozen=True)
class _Orientation:
    pan_offset: Annotated[float, Written("degrees", "Added to pan.", float)] = 0
    tilt_offset: Annotated[float, Written("degrees", "Added to tilt.", float)] = 0
    pan_invert: Annotated[bool, Written("true or false", "Pan turns the other direction.", bool)] = False
    tilt_invert: Annotated[bool, Written("true or false", "Tilt turns the other direction.", bool)] = False


@dataclass(frozen=True)
class _Limits:
    pan: Annotated[Any, Written(_PAIR, "Degrees.", list[float])] = None
    tilt: Annotated[Any, Written(_PAIR, "Degrees.", list[float])] = None


@dataclass(frozen=True)
class _Maps:
    shutter: Annotated[dict[str, Any] | None, Written(_MAPPING, "By name.", dict[str, Any])] = None
    color: Annotated[dict[str, Any] | None, Written(_MAPPING, "By name.", dict[str, Any])] = None
    gobo: Annotated[dict[str, Any] | None, Written(_MAPPING, "By name.", dict[str, Any])] = None


class _RigReader(ModelReader):
    """Reads a fixtures file; all its problems are collected."""

    def __init__(self, document: Document) -> None:
        super().__init__(document, "")

    def rig(self) -> Rig | None:
        value = self.document.value
        if not isinstance(value, dict):
            self.wrong("", "", f"The file must be a mapping with 'fixtures', but this is {kind_of(value)}.")
            return None
        fields = self.fields(_RigFile, value, "", "a fixtures file")
        rows = fields.get("fixtures")
        if rows == []:
            self.wrong("", "fixtures", "'fixtures' must list at least one head.")
        fixtures = [self.fixture(row, below("fixtures", place)) for place, row in enumerate(rows or ())]
        for key in ("fixture_id", "xlights_model_name"):
            self.distinct(key, rows or ())
        if self.problems:
            return None
        return Rig(
            fixtures=tuple(fixture for fixture in fixtures if fixture),
            **{key: fields[key] for key in ("group_id",) if key in fields},
        )

    def distinct(self, key: str, rows: Any) -> None:
        seen: dict[str, int] = {}
        for place, row in enumerate(rows):
            name = row.get(key) if isinstance(row, dict) else None
            if isinstance(name, str) and seen.setdefault(name, place) != place:
                path = f"fixtures[{place}].{key}"
                line = self.document.place(f"fixtures[{seen[name]}].{key}").line
                self.wrong("", path, f"'{name}' is defined twice; the first is on line {line}.")

    def fixture(self, row: Any, path: str) -> Fixture | None:
        fields = self.item(_Row, row, path, "a fixture")
        if fields is None:
            return None
        for key in ("fixture_id", "xlights_model_name"):
            self.name(fields.get(key), below(path, key))
        config_path = below(path, "config")
        config = self.fields(_Config, fields.pop("config", {}), config_path, "'config'")
        for key in ("pan_range", "tilt_range"):
            self.pair(config, key, below(config_path, key))
        for key, model in (("orientation", _Orientation), ("limits", _Limits), ("maps", _Maps)):
            if key in config:
                config[key] = self.fields(model, config[key], below(config_path, key), f"'{key}'")
        for key, degrees in config.get("orientation", {}).items():
            if key.endswith("_offset") and abs(degrees) > MOST_DEGREES:
                self.wrong("", f"{config_path}.orientation.{key}", _TOO_FAR)
        for axis in ("pan", "tilt"):
            self.pair(config.get("limits", {}), axis, f"{config_path}.limits.{axis}")
        for channel, names in config.get("maps", {}).items():
            self.wheel(channel, names, f"{config_path}.maps.{channel}")
        count = config.get("channel_count", 16)
        mapping = config.get("dmx_mapping")
        if mapping is None:
            mapping = Fixture.model_fields["dmx_mapping"].get_default(call_default_factory=True)
        self.mapping(mapping, count, below(config_path, "dmx_mapping"))
        if "defaults" in config:
            config["defaults"] = self.defaults(
                config["defaults"], count, mapping, below(config_path, "defaults")
            )
        return None if self.problems else Fixture(**fields, **config)

    def pair(self, values: dict[str, Any], key: str, path: str) -> None:
        pair = values.get(key)
        if pair is not None and (len(pair) != 2 or pair[0] >= pair[1]):
            self.wrong("", path, f"'{key}' must be {_PAIR}.")
        elif pair is not None and max(map(abs, pair)) > MOST_DEGREES:
            self.wrong("", path, _TOO_FAR)

    def name(self, name: Any, path: str) -> None:
        """A name that xLights can have, and that no timing track of ours has."""
        if not isinstance(name, str):
            return
        if not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
            self.wrong("", path, f"A name has 1 to {LONGEST_NAME} printable characters.")
        elif name.startswith(OUR_TRACKS):
            self.wrong("", path, f"Timing tracks begin with '{OUR_TRACKS}'; a model needs another name.")

    def wheel(self, channel: str, names: Mapping[str, Any], path: str) -> None:
        known = VOCABULARIES[channel]
        for name, value in names.items():
            if name not in known:
                place = self.document.key_place(below(path, name))
                meant = self.nearest.of(name, known)
                self.wrong("", below(path, name), f"'{name}' is no {channel}.", meant, place)
            if type(value) is not int or not 0 <= value <= 255:
                self.wrong("", below(path, name), "A DMX value is a whole number from 0 to 255.")

    def mapping(self, mapping: Mapping[str, Any], count: int, path: str) -> None:
        users: dict[int, str] = {}
        for role, channel in mapping.items():
            role_path = below(path, role)
            if role not in ROLES:
                meant = self.nearest.of(role, ROLES)
                place = self.document.key_place(role_path)
                self.wrong("", role_path, f"'{role}' is no role of a channel.", meant, place)
            if type(channel) is not int or not 1 <= channel <= count:
                self.wrong("", role_path, f"'{role}' must be a channel from 1 to {count}, the channel_count.")
            elif users.setdefault(channel, role) != role:
                self.wrong(
                    "", role_path, f"Channel {channel} has two roles: '{users[channel]}' and '{role}'."
                )
        if missing := [role for role in NEEDED if role not in mapping]:
            self.wrong("", path, f"'dmx_mapping' needs {', '.join(map(repr, missing))}.")

    def defaults(
        self, values: Mapping[str, Any], count: int, mapping: Mapping[str, Any], path: str
    ) -> dict[int, int]:
        read: dict[int, int] = {}
        roles = {channel: role for role, channel in mapping.items() if isinstance(channel, int)}
        for key, value in values.items():
            key_path = below(path, key)
            channel = int(key) if key.isascii() and key.isdigit() and len(key) < 4 else 0
            if not 1 <= channel <= count:
                self.wrong("", key_path, f"'{key}' is no channel from 1 to {count}, the channel_count.")
            elif channel in roles:
                self.wrong("", key_path, f"Channel {channel} has a role: '{roles[channel]}'.")
            elif type(value) is not int or not 0 <= value <= 255:
                self.wrong("", key_path, "A DMX value is a whole number from 0 to 255.")
            read[channel] = value
        return read


def read_fixtures(path: Path) -> Rig:
    """Read a rig from a YAML file.

    Raises:
        DocumentError: it cannot be used; all problems at once.
        ConfigurationError: it cannot be read.
    """
    try:
        raw = file_bytes(path)
    except OSError as error:
        raise ConfigurationError(f"The fixtures file {path} cannot be read: {error.strerror}.") from error
    document = read_document(raw, str(path), code="", keys_as_written=True)
    reader = _RigReader(document)
    rig = None if document.errors else reader.rig()
    if rig is None or document.errors:
        raise DocumentError(f"The fixtures file {path}", [*document.errors, *reader.problems])
    return rig


def check_layout(rig: Rig, rgbeffects_path: Path) -> None:
    """Check that xLights knows the model of each head: it drops effects of models it does not know.

    Raises:
        DocumentError: models are missing; all of them at once.
        ConfigurationError: the layout cannot be read.
    """
    try:
        root = parse_xml(file_bytes(rgbeffects_path)).root
    except OSError as error:
        raise ConfigurationError(f"The layout {rgbeffects_path} cannot be read: {error.strerror}.") from error
    except XmlRefused as error:
        raise ConfigurationError(f"The layout {rgbeffects_path}: {error}") from error
    models = {
        node.attributes["name"]
        for group in ("models", "modelGroups")
        for parent in root.all(group)
        for node in parent.children
        if "name" in node.attributes
    }
    problems = [
        Problem(
            "",
            f"{fixture.fixture_id}: the layout has no model '{fixture.xlights_model_name}'.",
            suggestions=tuple(get_close_matches(fixture.xlights_model_name, models, n=3)),
        )
        for fixture in rig.fixtures
        if fixture.xlights_model_name not in models
    ]
    if problems:
        raise DocumentError(f"The layout {rgbeffects_path}", problems)
