"""The project file and the user's own below it: reads them, lays the environment and the command line over
them, and checks every key.

Order: command line, environment, project file, user file, default. All problems are reported at once, each
with its place. What keys mean belongs to the code that uses them; here their names and types are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detent.authoring.document import Document, below, read_document
from detent.dispatch.autonomy import AutonomyLevel
from detent.kernel.errors import ConfigurationError, nearest
from detent.kernel.plain import decode

FILES = ("detent.yaml", "config.yaml")
"""Names the project file may have, the better one first."""
LONGEST_FILE = 250_000
"""Bytes of a settings file: every command reads it."""
USER_FILE = "detent.yaml"
"""The user's own settings, in the folder that `config_home` names."""
PREFIX = "DETENT__"
"""Environment variables of this form set any key: DETENT__BUDGET__STEPS=20."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a key takes: one declaration for the check, the message and the JSON Schema."""

    what: str
    """Completes "'key' takes …"."""
    fits: Callable[[Any], bool]
    schema: Mapping[str, Any]
    keys: Mapping[str, Any] | None = None
    """Keys below it, where a mapping fits."""


Keys = Mapping[str, Any] | Value | None
"""What may stand under a heading: keys, each with what may stand below it, or a value; None takes anything.
The key `*` stands for every name."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _are_hosts(value: Any) -> bool:
    return _are_texts(value) and all(is_host(host) for host in ([value] if isinstance(value, str) else value))


_TEXTS = {"type": ["string", "array", "null"], "items": {"type": "string"}}
NO_HOST = "port, scheme, path or user"
"""What is no part of a host, for messages."""
FLAG = Value("true or false", lambda value: isinstance(value, bool), {"type": ["boolean", "null"]})
COUNT = Value(
    "a whole number of 1 or more",
    lambda value: type(value) is int and value >= 1,
    {"type": ["integer", "null"], "minimum": 1},
)
SHARE = Value(
    "a share from 0 to 1",
    lambda value: _is_number(value) and 0 <= value <= 1,
    {"type": ["number", "null"], "minimum": 0, "maximum": 1},
)
LIMIT = Value(
    "a number above 0",
    lambda value: _is_number(value) and value > 0,
    {"type": ["number", "null"], "exclusiveMinimum": 0},
)
_LEVELS = [level.value for level in AutonomyLevel]
LEVEL = Value(f"one of {', '.join(_LEVELS)}", _LEVELS.__contains__, {"enum": [*_LEVELS, None]})
USD = Value(
    "USD per million tokens, 0 or more",
    lambda value: _is_number(value) and value >= 0,
    {"type": ["number", "null"], "minimum": 0},
)
PRICES = ("input", "output", "cache_read", "cache_write")
"""What a model's tokens are charged as, in USD per million."""
_PRICE = Value(
    "both input and output",
    lambda value: isinstance(value, Mapping) and None not in (value.get("input"), value.get("output")),
    {"type": ["object", "null"], "required": ["input", "output"]},
    dict.fromkeys(PRICES, USD),
)
COMMON: Mapping[str, Keys] = {
    "store": Value(
        "a path or URL",
        lambda value: isinstance(value, (str, Mapping)),
        {"type": ["string", "object", "null"]},
        {"url": None, "sync": None, "schema": None},
    ),
    "plugins": Value("a list of modules or paths of Python files", _are_texts, _TEXTS),
    "model": dict.fromkeys(
        ("provider", "id", "model_id", "temperature", "max_tokens", "timeout", "base_url", "api_key_env")
    ),
    "models": {"*": None},  # the adapter of a model checks its options
    "steps": {"*": None},
    "agents": {"*": None},
    "budget": {**dict.fromkeys(("tokens", "cost_usd", "steps", "seconds"), LIMIT), "enforce": FLAG},
    "logging": dict.fromkeys(("level", "format", "file")),
    "telemetry": {"enabled": FLAG, "reasons": FLAG},
    "concurrency": COUNT,
    "agreement": {"min_n": COUNT, "min_lower95": SHARE, "window": COUNT},
    "autonomy": {
        "demote": {"enabled": FLAG, "hard": COUNT, "agreement": SHARE, "window": COUNT, "floor": LEVEL}
    },
    "prices": {"*": _PRICE},
    "mcp": None,
    "mail": None,  # the mail adapter checks its keys
    "eval": dict.fromkeys(("test_suite_path", "pass_threshold", "jobs")),
    "keys": {"*": Value(f"hosts without {NO_HOST}, such as crm.firm.example", _are_hosts, _TEXTS)},
}
"""Headings every project may have."""
USER_ONLY = ("keys",)
"""Headings that only the user may write: a project cannot say where the user's keys go."""

SHORT = {
    "DETENT_STORE": ("store",),
    "DETENT_LOG_LEVEL": ("logging", "level"),
    "DETENT_LOG_FORMAT": ("logging", "format"),
    "DETENT_LOG_FILE": ("logging", "file"),
}
"""Environment variables with a name of their own; stronger than the long form."""
FORCE = "DETENT_FORCE_DETERMINISTIC"
"""Environment variable that makes every run use its handlers, whatever the settings say."""
ENTRIES = {"steps": 2, "models": 2, "agents": 2, "autonomy": 2}
"""Headings whose values are entries with fields of their own: how many levels of keys are laid over each
other one by one. Elsewhere it is one."""

_SECRET = re.compile(
    r"(^|[_-])(password|passwd|passphrase|api_?key|secret|secret_key|access_key|private_key|token)$", re.I
)
_URL_SECRET = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s:]*:([^/@\s]+)@", re.I)
_HOST = re.compile(r"[^\W_](?:[\w-]*\w)?(?:\.\w(?:[\w-]*\w)?)*\.?")
_SECRET_LENGTH = 8
"""Shorter values are too common as ordinary text to be hidden wherever they turn up."""

Way = tuple[str, ...]
"""The keys that lead to a value."""


class SettingsError(ConfigurationError):
    """The settings cannot be used; all problems are listed at once."""

    def __init__(self, subject: str, problems: list[str], settings: Settings | None = None) -> None:
        self.problems = problems
        self.settings = settings
        """The settings as far as they could be read, for further checks."""
        if len(problems) == 1:
            super().__init__(problems[0])
        else:
            lines = "\n".join(f"  {problem}" for problem in problems)
            super().__init__(f"{subject} have {len(problems)} problems:\n{lines}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user, the project, the environment and the command line say together."""

    folder: Path
    """The working folder."""
    file: Path | None = None
    """The project file, when there is one."""
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[Way, str] = field(default_factory=dict)
    """Place of each key: `detent.yaml, line 3`, or the name of an environment variable."""
    bases: Mapping[Way, Path] = field(default_factory=dict)
    """Folder of the file that said a key, as long as nothing stronger said anything about it."""
    force_deterministic: bool = False
    """The environment wants every run to use its handlers."""
    project: frozenset[Way] = frozenset()
    """Keys that hold what the project file says: neither the user, the environment nor the command line."""

    def of_project(self, *way: str) -> bool:
        """Whether a value, or anything below it, comes from the project file."""
        return any(one[: len(way)] == way for one in self.project)

    def get(self, *way: str, default: Any = None) -> Any:
        """The value at a way through the headings, or `default` when it is not said."""
        value: Any = self.values
        for key in way:
            if not isinstance(value, Mapping) or value.get(key) is None:
                return default
            value = value[key]
        return value

    def section(self, heading: str) -> Mapping[str, Any]:
        """Everything under a heading."""
        value = self.get(heading, default={})
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{self.place(heading)}: '{heading}' takes named values.")
        return value

    def place(self, *way: str) -> str:
        """Place of a key, for messages."""
        return self.places.get(way, "the settings")

    def base(self, *way: str) -> Path:
        """The folder that relative paths at this key start from: that of the file which said it."""
        return self.bases.get(way, self.folder)


def read_settings(
    config: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    headings: Callable[[Settings], Mapping[str, Keys]] | None = None,
) -> Settings:
    """The settings that hold here.

    `overrides` come from the command line. `headings` is asked for the headings of flows and applications,
    and only when one turns up that is not common to all.
    """
    folder = folder or _working_folder()
    environ = os.environ if environ is None else environ
    file = _find(folder, config, environ)
    problems: list[str] = []
    places: dict[Way, str] = {}
    bases: dict[Way, Path] = {}
    values: dict[str, Any] = {}
    project: set[Way] = set()
    for source in (_find_user(folder, environ), file):  # the weaker one first
        if source is not None and not (source is not file and file is not None and _same(source, file)):
            there: dict[Way, str] = {}
            said = _read_file(source, _shown(source, folder, environ), there, problems)
            problems += _secrets(said, there)
            values = _over(values, said, ENTRIES)
            places.update(there)
            bases.update(dict.fromkeys(there, source.parent))
            if source is file:
                project = set(there)
                problems += [
                    f"{there[heading,]}: '{heading}' belongs into your own settings, not into a project's."
                    for heading in USER_ONLY
                    if (heading,) in there
                ]
    for way, value, variable in _environment(environ):
        way = _entry(values, way)
        _put(values, way, value, variable, places, problems)
        for length in range(1, len(way) + 1):
            bases.pop(way[:length], None)
        project = {one for one in project if one[: len(way)] != way}
    for heading, value in (overrides or {}).items():
        if value is not None:
            values[heading] = value
            places[(heading,)] = "the command line"
            bases.pop((heading,), None)
            project = {one for one in project if one[0] != heading}
    forced = _forced(environ, problems)
    settings = Settings(folder, file, values, places, bases, forced, frozenset(project))
    known = dict(COMMON)
    complete = True
    if headings is not None and any(heading not in known for heading in values):
        try:
            # What is declared here is checked here, whatever a plug says about the same heading.
            known.update((name, keys) for name, keys in headings(settings).items() if known.get(name) is None)
        except Exception:
            if not problems:
                raise
            complete = False  # a plugin cannot be looked into while what names it is itself in doubt
    told = values if complete else {name: value for name, value in values.items() if name in known}
    problems += _misfits(told, known, (), places)
    if problems:
        raise SettingsError("The settings", problems, settings)
    return settings


def settings_schema(headings: Mapping[str, Keys]) -> dict[str, Any]:
    """The JSON Schema of a settings file: its headings, the keys below them and what each takes."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "Detent settings", **_schema({**COMMON, **headings})}


def _schema(keys: Keys) -> dict[str, Any]:
    if keys is None:
        return {}
    if isinstance(keys, Value):
        return {**(_schema(keys.keys) if keys.keys is not None else {}), **keys.schema}
    return {
        "type": ["object", "null"],
        "properties": {key: _schema(inner) for key, inner in keys.items() if key != "*"},
        "additionalProperties": _schema(keys["*"]) if "*" in keys else False,
    }


# -- sources ------------------------------------------------------------------------------------------------


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigurationError("The working folder does not exist any more.") from None


def _find(folder: Path, config: str | None, environ: Mapping[str, str]) -> Path | None:
    said, by = config, "--config"
    if said is None:
        said, by = environ.get("DETENT_CONFIG") or None, "DETENT_CONFIG"
    if said is not None:
        file = folder / said
        if not file.is_file():
            raise ConfigurationError(f"There is no settings file {said} ({by}).")
        return file
    return next((folder / name for name in FILES if (folder / name).is_file()), None)


def _find_user(folder: Path, environ: Mapping[str, str]) -> Path | None:
    said = environ.get("DETENT_USER_CONFIG")
    if said:
        file = folder / Path(said).expanduser()
        if not file.is_file():
            raise ConfigurationError(f"There is no settings file {said} (DETENT_USER_CONFIG).")
        return file
    home = config_home(environ)
    return home / USER_FILE if home is not None and (home / USER_FILE).is_file() else None


def config_home(environ: Mapping[str, str] | None = None) -> Path | None:
    """The user's folder for Detent: settings, workflows, trusted projects; None where there is no home."""
    environ = os.environ if environ is None else environ
    if environ.get("DETENT_CONFIG_HOME"):
        return Path(environ["DETENT_CONFIG_HOME"]).expanduser().absolute()
    base, home = environ.get("XDG_CONFIG_HOME"), _home(environ)
    if not base and home is None:
        return None
    return (Path(base) if base else Path(str(home)) / ".config") / "detent"


def _home(environ: Mapping[str, str]) -> Path | None:
    said = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(said) if said else None


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _shown(file: Path, folder: Path, environ: Mapping[str, str]) -> str:
    """A file's name for messages: from the working folder, else from the home folder."""
    if file.is_relative_to(folder):
        return str(file.relative_to(folder))
    home = _home(environ)
    return f"~/{file.relative_to(home).as_posix()}" if home and file.is_relative_to(home) else str(file)


def _over(below: Mapping[str, Any], above: Mapping[str, Any], depths: Mapping[str, int]) -> dict[str, Any]:
    """One file's values laid over another's, heading by heading and key by key; null says nothing."""
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _laid(merged.get(key), value, depths.get(key, 1))
    return merged


def _laid(below: Any, above: Any, depth: int) -> Any:
    if above is None:
        return below
    if depth == 0 or not isinstance(above, Mapping) or not isinstance(below, Mapping):
        return above
    return {**below, **{key: _laid(below.get(key), value, depth - 1) for key, value in above.items()}}


def _forced(environ: Mapping[str, str], problems: list[str]) -> bool:
    """Whether the environment switches agents off."""
    said = environ.get(FORCE, "").strip().lower()
    if said in ("true", "1", "yes"):
        return True
    if said not in ("", "false", "0", "no"):
        problems.append(f"{FORCE}: takes true, 1 or yes, or false, 0 or no.")
    return False


def _read_file(file: Path, shown: str, places: dict[Way, str], problems: list[str]) -> dict[str, Any]:
    """The file's values; every key's line goes to `places`.

    A scalar that YAML 1.1 read differently is refused rather than warned of: a setting must not change its
    meaning in silence.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(LONGEST_FILE + 1)
    except OSError as error:
        raise ConfigurationError(f"{shown} cannot be read: {error.strerror}.") from error
    document = read_document(
        raw, shown, code="", most_bytes=LONGEST_FILE, was_yaml_1_1=True, keys_as_written=True
    )
    wrong = [f"{shown}, line {problem.place.line}: {problem.message}" for problem in document.problems]
    if document.value is None and wrong:
        raise ConfigurationError(wrong[-1])  # the one that ended the reading
    if not isinstance(document.value, dict | None):
        raise ConfigurationError(f"{shown}: a settings file holds headings with values under them.")
    problems += wrong
    places |= {way: f"{shown}, line {line}" for way, line in _lines(document, document.value, (), "")}
    return document.value or {}


def _lines(document: Document, value: Any, way: Way, path: str) -> Iterator[tuple[Way, int]]:
    """The line of every key, lists left out."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        here = below(path, key)
        yield (*way, key), document.key_place(here).line
        yield from _lines(document, inner, (*way, key), here)


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[Way, Any, str]]:
    """What the environment says, weaker variables first."""
    for variable in sorted(environ):
        if variable.startswith(PREFIX):
            way = tuple(part.lower() for part in variable[len(PREFIX) :].split("__"))
            yield way, _value(environ[variable]), variable
    for variable, way in SHORT.items():
        if environ.get(variable):
            yield way, environ[variable], variable


def alike(name: str) -> str:
    """A name as a variable can spell it: `commit-message` and `COMMIT_MESSAGE` are the same."""
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def _entry(values: Mapping[str, Any], way: Way) -> Way:
    """A variable's way, its entry named as a file names it: names of steps and models hold more than a
    variable can."""
    entries = values.get(way[0])
    if len(way) < 2 or way[0] not in ("steps", "models", "agents") or not isinstance(entries, Mapping):
        return way
    meant = [name for name in entries if alike(str(name)) == alike(way[1])]
    return (way[0], str(meant[0]), *way[2:]) if len(meant) == 1 else way


def _value(text: str) -> Any:
    """A variable's text as the value it stands for: JSON where it is JSON, else the text itself."""
    try:
        return decode(text)
    except ValueError:
        return text


def _put(
    values: dict[str, Any], way: Way, value: Any, place: str, places: dict[Way, str], problems: list[str]
) -> None:
    """Lay one value over what is there."""
    if not all(way):
        problems.append(f"{place}: the name has an empty part.")
        return
    inner = values
    for index, key in enumerate(way[:-1], 1):
        value_there = inner.get(key)
        inner[key] = dict(value_there) if isinstance(value_there, Mapping) else {}
        inner = inner[key]
        places.setdefault(way[:index], place)
    inner[way[-1]] = value
    places[way] = place


def is_host(text: str) -> bool:
    """Whether a text is the name or address of a host, and nothing else."""
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def known_secrets(environ: Mapping[str, str], variables: Iterable[str] = ()) -> frozenset[str]:
    """Values of the environment that no text may show: those of the named variables, those whose names speak
    of keys and passwords, and passwords in addresses."""
    named = set(variables)
    found: set[str] = set()
    for name, value in environ.items():
        if name in named or _SECRET.search(name):
            found.add(value)
        elif "://" in value and (address := _URL_SECRET.match(value)) is not None:
            found |= {value, address.group(1)}
    return frozenset(value for value in found if len(value) >= _SECRET_LENGTH)


# -- checks -------------------------------------------------------------------------------------------------


def _misfits(value: Any, keys: Keys, way: Way, places: Mapping[Way, str]) -> Iterator[str]:
    """Unknown keys, each with the nearest known one, and values of the wrong kind."""
    if value is None or keys is None:
        return
    place = places.get(way, "the settings")
    if isinstance(keys, Value):
        if not keys.fits(value):
            yield f"{place}: '{'.'.join(way)}' takes {keys.what}."
        keys = keys.keys
    elif not isinstance(value, Mapping):
        yield f"{place}: '{'.'.join(way)}' takes named values."
    if keys is None or not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        here = (*way, str(key))
        if key in keys or "*" in keys:
            yield from _misfits(inner, keys.get(key, keys.get("*")), here, places)
            continue
        hint = nearest(str(key), keys) or f" Known here: {', '.join(sorted(keys))}."
        what = "key" if way else "heading"
        yield f"{places.get(here, 'the settings')}: unknown {what} '{'.'.join(here)}'.{hint}"


def _secrets(value: Any, places: Mapping[Way, str], way: Way = ()) -> list[str]:
    """Values that must not stand in a file that is kept and shared."""
    found: list[str] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = (*way, str(key))
            if (
                _SECRET.search(str(key))
                and not _names_a_variable(here)
                and inner not in (None, "")
                and not isinstance(inner, (Mapping, list))
            ):
                found.append(_secret(places, here, f"'{'.'.join(here)}'"))
            else:
                found += _secrets(inner, places, here)
    elif isinstance(value, list):
        for item in value:
            found += _secrets(item, places, way)
    elif isinstance(value, str) and _URL_SECRET.match(value):
        found.append(_secret(places, way, f"the password in '{'.'.join(way)}'"))
    return found


def _names_a_variable(way: Way) -> bool:
    """True for keys whose value is the name of the variable that holds a secret: `mcp.docs.env.TOKEN`."""
    return len(way) == 4 and way[0] == "mcp" and way[2] in ("env", "headers")


def _secret(places: Mapping[Way, str], way: Way, what: str) -> str:
    variable = "DETENT_STORE" if way[0] == "store" else PREFIX + "__".join(way).upper()
    return (
        f"{places.get(way, 'the settings')}: {what} does not belong in the file; "
        f"secrets come from the environment (for example {variable})."
    )
