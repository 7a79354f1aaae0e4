"""Settings: reads the project file and the user's own file, overlays the environment and the command line,
and checks every key.

Precedence: command line, environment, project file, user file, default. All problems are reported at once,
each with its place. Names and types of keys are checked here; their meaning belongs to the code that uses
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from detent.authoring.document import Document, below, read_document
from detent.authoring.names import Nearest
from detent.authoring.problem import Place, Problem
from detent.dispatch.autonomy import AutonomyLevel
from detent.kernel.errors import ConfigurationError
from detent.kernel.plain import decode

FILES = ("detent.yaml", "config.yaml")
"""Names the project file may have, the preferred one first."""
LONGEST_FILE = 250_000
"""Largest size of a settings file in bytes; every command reads it."""
USER_FILE = "detent.yaml"
"""The user's own settings, in the folder that `config_home` names."""
PREFIX = "DETENT__"
"""Prefix of environment variables that set any key: DETENT__BUDGET__STEPS=20."""


@dataclass(frozen=True, slots=True)
class Value:
    """The values a key accepts: one declaration for the check, the message and the JSON Schema."""

    what: str
    """Completes "'key' takes …"."""
    fits: Callable[[Any], bool]
    schema: Mapping[str, Any]
    keys: Mapping[str, Any] | None = None
    """Keys allowed below it, if it accepts a mapping."""


Keys = Mapping[str, Any] | Value | None
"""Content allowed under a heading: nested keys, or a value; None allows anything. The key `*` stands for
every name."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )


def _are_hosts(value: Any) -> bool:
    return _are_texts(value) and all(is_host(host) for host in ([value] if isinstance(value, str) else value))


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


_TEXTS = {"type": ["string", "array", "null"], "items": {"type": "string"}}
NO_HOST = "port, scheme, path or user"
"""Parts of an address that do not belong to a host, for messages."""
FLAG = Value("true or false", lambda value: isinstance(value, bool), {"type": ["boolean", "null"]})
COUNT = Value(
    "a whole number of 1 or more",
    lambda value: type(value) is int and value >= 1,
    {"type": ["integer", "null"], "minimum": 1},
)
SHARE = Value(
    "a share from 0 to 1",
    lambda value: _is_share(value),
    {"type": ["number", "null"], "minimum": 0, "maximum": 1},
)
NUMBER = Value(
    "a whole number of 0 or more",
    lambda value: type(value) is int and value >= 0,
    {"type": ["integer", "null"], "minimum": 0},
)
SHARES = Value(
    "a share from 0 to 1, or one each for consultant and approver",
    lambda value: (
        _is_share(value)
        or (isinstance(value, Mapping) and all(map(_is_share, value.values())) and bool(value))
    ),
    {"type": ["number", "object", "null"], "minimum": 0, "maximum": 1},
    {"consultant": None, "approver": None},
)
LIMIT = Value(
    "a number above 0",
    lambda value: _is_number(value) and value > 0,
    {"type": ["number", "null"], "exclusiveMinimum": 0},
)
_LEVELS = [level.value for level in AutonomyLevel]
LEVEL = Value(f"one of {', '.join(_LEVELS)}", _LEVELS.__contains__, {"enum": [*_LEVELS, None]})
LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
LOG_FORMATS = ("text", "json", "console")


def _one_of(*words: str) -> Value:
    return Value(
        f"one of {', '.join(words)}", lambda value: str(value).lower() in words, {"enum": [*words, None]}
    )


USD = Value(
    "USD per million tokens, 0 or more",
    lambda value: _is_number(value) and value >= 0,
    {"type": ["number", "null"], "minimum": 0},
)
PRICES = ("input", "output", "cache_read", "cache_write")
"""Token categories a model charges for, in USD per million."""
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
    "require_model": FLAG,
    "models": {"*": None},  # the adapter of a model checks its options
    "steps": {"*": None},
    "agents": {"*": None},
    "budget": {**dict.fromkeys(("tokens", "cost_usd", "steps", "seconds"), LIMIT), "enforce": FLAG},
    "logging": {"level": _one_of(*LOG_LEVELS), "format": _one_of(*LOG_FORMATS), "file": None},
    "telemetry": {"enabled": FLAG, "reasons": FLAG},
    "concurrency": COUNT,
    "agreement": {"min_n": COUNT, "min_lower95": SHARE, "window": COUNT},
    "autonomy": {
        "demote": {"enabled": FLAG, "hard": COUNT, "agreement": SHARE, "window": COUNT, "floor": LEVEL},
        "tolerate": SHARES,
        "risk": SHARE,
        "min_power": SHARE,
        "audit": SHARES,
        "audit_per_day": NUMBER,
        "recheck": NUMBER,
        "harm": LIMIT,
        "patience": LIMIT,
        "min_days": COUNT,
        "max_unusable": SHARE,
        "plant": SHARE,
        "plant_first": SHARE,
        "plant_until": NUMBER,
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
"""Environment variables with a short name; they override the long form."""
FORCE = "DETENT_FORCE_DETERMINISTIC"
"""Environment variable that makes every run use its handlers, regardless of the settings."""
ENTRIES = {"steps": 2, "models": 2, "agents": 2, "autonomy": 2}
"""Number of key levels that are merged one by one, for headings whose values are entries with fields of
their own. For every other heading it is one."""

_SECRET = re.compile(
    r"(^|[_-])(password|passwd|passphrase|api_?key|secret|secret_key|access_key|private_key|token)$", re.I
)
_URL_SECRET = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s:]*:([^/@\s]+)@", re.I)
_HOST = re.compile(r"[^\W_](?:[\w-]*\w)?(?:\.\w(?:[\w-]*\w)?)*\.?")
_SECRET_LENGTH = 8
"""Shortest value that is masked; shorter ones are too common as ordinary text."""
_WORD = re.compile(r"[A-Z]?[a-z]*|[A-Z]*|[0-9]*")
_WORD_LENGTH = 16
"""Shortest value of letters or digits alone that is masked: `postgres` and `12345678` are ordinary text."""

KeyPath = tuple[str, ...]
"""The keys that lead to a value."""


COMMAND_LINE = Place("the command line", 0, 0)
SOMEWHERE = Place("the settings", 0, 0)
"""Place of a key that no source sets."""


class SettingsError(ConfigurationError):
    """The settings cannot be used; all problems are listed at once."""

    def __init__(self, subject: str, problems: Iterable[Problem], settings: Settings | None = None) -> None:
        self.problems = list(problems)
        self.settings = settings
        """The settings as far as they could be read, for further checks."""
        if len(self.problems) == 1:
            super().__init__(str(self.problems[0]))
        else:
            lines = "\n".join(f"  {problem}" for problem in self.problems)
            super().__init__(f"{subject} have {len(self.problems)} problems:\n{lines}")


@dataclass(frozen=True, slots=True)
class Settings:
    """The merged settings of the user, the project, the environment and the command line."""

    folder: Path
    """The working folder."""
    file: Path | None = None
    """The project file, when there is one."""
    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[KeyPath, Place] = field(default_factory=dict)
    """Place of each key: in a file, or the name of an environment variable."""
    bases: Mapping[KeyPath, Path] = field(default_factory=dict)
    """Folder of the file that sets a key, unless a stronger source overrides the key."""
    force_deterministic: bool = False
    """The environment forces every run to use its handlers."""
    project: frozenset[KeyPath] = frozenset()
    """Keys whose value comes from the project file."""

    def of_project(self, *keys: str) -> bool:
        """Whether a value, or anything below it, comes from the project file."""
        return any(path[: len(keys)] == keys for path in self.project)

    def get(self, *keys: str, default: Any = None) -> Any:
        """The value at a path of keys, or `default` if it is not set."""
        value: Any = self.values
        for key in keys:
            if not isinstance(value, Mapping) or value.get(key) is None:
                return default
            value = value[key]
        return value

    def over(self, changes: Mapping[KeyPath, Any]) -> Settings:
        """These settings with values of the command line merged over them, key by key."""
        values: dict[str, Any] = dict(self.values)
        places = dict(self.places)
        for keys, value in changes.items():
            inner = values
            for length, key in enumerate(keys[:-1], 1):
                below = inner.get(key)
                inner[key] = inner = dict(below) if isinstance(below, Mapping) else {}
                places.setdefault(keys[:length], COMMAND_LINE)
            inner[keys[-1]] = value
            places[keys] = COMMAND_LINE
        return replace(self, values=values, places=places)

    def section(self, heading: str) -> Mapping[str, Any]:
        """Everything under a heading."""
        value = self.get(heading, default={})
        if not isinstance(value, Mapping):
            raise SettingsError(
                "The settings", [self.problem((heading,), f"'{heading}' takes named values.")]
            )
        return value

    def place(self, *keys: str) -> Place:
        """Place of a key, or of its nearest parent that has one."""
        return _place(self.places, keys)

    def by_variable(self, *keys: str) -> bool:
        """Whether an environment variable that can set any key sets this one."""
        return self.places.get(keys, SOMEWHERE).file.startswith(PREFIX)

    def problem(
        self, keys: Sequence[str], message: str, suggestions: tuple[str, ...] = (), code: str = ""
    ) -> Problem:
        """A problem at a key."""
        return Problem(code, message, self.place(*keys), ".".join(keys), suggestions)

    def base(self, *keys: str) -> Path:
        """The folder that relative paths at this key start from: the folder of the file that sets the key."""
        return self.bases.get(keys, self.folder)


def read_settings(
    config: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    headings: Callable[[Settings], Mapping[str, Keys]] | None = None,
) -> Settings:
    """Read and merge the settings of a folder.

    `overrides` come from the command line. `headings` returns the headings of flows and applications; it is
    called only if a heading is not in `COMMON`.

    Raises:
        SettingsError: some settings are wrong; it lists every problem.
        ConfigurationError: a settings file is missing or cannot be read.
    """
    folder = folder or _working_folder()
    environ = os.environ if environ is None else environ
    file = _find(folder, config, environ)
    problems: list[Problem] = []
    places: dict[KeyPath, Place] = {}
    bases: dict[KeyPath, Path] = {}
    values: dict[str, Any] = {}
    project: set[KeyPath] = set()
    for source in (_find_user(folder, environ), file):  # the weaker one first
        if source is not None and not (source is not file and file is not None and _same(source, file)):
            file_places: dict[KeyPath, Place] = {}
            file_values = _read_file(source, _display_name(source, folder, environ), file_places, problems)
            problems += _secrets(file_values, file_places)
            values = _merge(values, file_values, ENTRIES)
            places.update(file_places)
            bases.update(dict.fromkeys(file_places, source.parent))
            if source is file:
                project = set(file_places)
                problems += [
                    Problem(
                        "", f"'{heading}' belongs into your own settings, not into a project's.",
                        file_places[heading,], heading,
                    )
                    for heading in USER_ONLY
                    if (heading,) in file_places
                ]  # fmt: skip
    for keys, value, place in _environment(environ):
        keys = _entry(values, keys)
        _set(values, keys, value, place, places, problems)
        for length in range(1, len(keys) + 1):
            bases.pop(keys[:length], None)
        project = {path for path in project if path[: len(keys)] != keys}
    for heading, value in (overrides or {}).items():
        if value is not None:
            values[heading] = value
            places[(heading,)] = COMMAND_LINE
            bases.pop((heading,), None)
            project = {path for path in project if path[0] != heading}
    forced = _forced(environ, problems)
    settings = Settings(folder, file, values, places, bases, forced, frozenset(project))
    known = dict(COMMON)
    complete = True
    if headings is not None and any(heading not in known for heading in values):
        try:
            # The declarations in COMMON take precedence over a plug's declaration of the same heading.
            known.update(
                (name, declared) for name, declared in headings(settings).items() if known.get(name) is None
            )
        except Exception:
            if not problems:
                raise
            complete = False  # plugins cannot be loaded while the settings that name them have problems
    checkable = values if complete else {name: value for name, value in values.items() if name in known}
    problems += _misfits(checkable, known, (), places)
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
    file_name, by = config, "--config"
    if file_name is None:
        file_name, by = environ.get("DETENT_CONFIG") or None, "DETENT_CONFIG"
    if file_name is not None:
        file = folder / file_name
        if not file.is_file():
            raise ConfigurationError(f"There is no settings file {file_name} ({by}).")
        return file
    return next((folder / standard for standard in FILES if (folder / standard).is_file()), None)


def _find_user(folder: Path, environ: Mapping[str, str]) -> Path | None:
    name = environ.get("DETENT_USER_CONFIG")
    if name:
        file = folder / Path(name).expanduser()
        if not file.is_file():
            raise ConfigurationError(f"There is no settings file {name} (DETENT_USER_CONFIG).")
        return file
    home = config_home(environ)
    return home / USER_FILE if home is not None and (home / USER_FILE).is_file() else None


def config_home(environ: Mapping[str, str] | None = None) -> Path | None:
    """The user's folder for Detent: settings, definitions, trusted projects; None where there is no home."""
    environ = os.environ if environ is None else environ
    if environ.get("DETENT_CONFIG_HOME"):
        return Path(environ["DETENT_CONFIG_HOME"]).expanduser().absolute()
    base, home = environ.get("XDG_CONFIG_HOME"), _home(environ)
    if not base and home is None:
        return None
    return (Path(base) if base else Path(str(home)) / ".config") / "detent"


def _home(environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(folder) if folder else None


def _same(file: Path, other: Path) -> bool:
    return file.resolve() == other.resolve()


def _display_name(file: Path, folder: Path, environ: Mapping[str, str]) -> str:
    """A file's name for messages: from the working folder, else from the home folder."""
    if file.is_relative_to(folder):
        return str(file.relative_to(folder))
    home = _home(environ)
    return f"~/{file.relative_to(home).as_posix()}" if home and file.is_relative_to(home) else str(file)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any], depths: Mapping[str, int]) -> dict[str, Any]:
    """One file's values merged over another's, heading by heading and key by key; null changes nothing."""
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


def _forced(environ: Mapping[str, str], problems: list[Problem]) -> bool:
    """Whether the environment switches agents off."""
    switch = environ.get(FORCE, "").strip().lower()
    if switch in ("true", "1", "yes"):
        return True
    if switch not in ("", "false", "0", "no"):
        problems.append(Problem("", "takes true, 1 or yes, or false, 0 or no.", Place(FORCE, 0, 0)))
    return False


def _read_file(
    file: Path, shown: str, places: dict[KeyPath, Place], problems: list[Problem]
) -> dict[str, Any]:
    """The file's values; adds the place of every key to `places`.

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
    if document.value is None and document.problems:
        ended_by = document.problems[-1]._replace(code="")
        raise SettingsError("The settings", [ended_by])
    if not isinstance(document.value, dict | None):
        message = "a settings file holds headings with values under them."
        raise SettingsError("The settings", [Problem("", message, Place(shown, 1))])
    problems += [problem._replace(code="") for problem in document.problems]  # refused, warnings too
    places |= _places(document, document.value, (), "")
    return document.value or {}


def _places(document: Document, value: Any, keys: KeyPath, path: str) -> Iterator[tuple[KeyPath, Place]]:
    """The place of every key, lists left out."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        here = below(path, key)
        yield (*keys, key), Place(*document.key_place(here))
        yield from _places(document, inner, (*keys, key), here)


def _environment(environ: Mapping[str, str]) -> Iterator[tuple[KeyPath, Any, Place]]:
    """Keys and values set by environment variables, weaker variables first."""
    for variable in sorted(environ):
        if variable.startswith(PREFIX):
            keys = tuple(part.lower() for part in variable[len(PREFIX) :].split("__"))
            yield keys, _value(environ[variable]), Place(variable, 0, 0)
    for variable, keys in SHORT.items():
        if environ.get(variable):
            yield keys, environ[variable], Place(variable, 0, 0)


def alike(name: str) -> str:
    """A name as a variable can spell it: `commit-message` and `COMMIT_MESSAGE` are the same."""
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def _entry(values: Mapping[str, Any], keys: KeyPath) -> KeyPath:
    """A variable's path of keys, with the entry spelled as the file spells it: names of steps and models may
    hold characters that a variable's name cannot."""
    entries = values.get(keys[0])
    if len(keys) < 2 or keys[0] not in ("steps", "models", "agents") or not isinstance(entries, Mapping):
        return keys
    meant = [name for name in entries if alike(str(name)) == alike(keys[1])]
    return (keys[0], str(meant[0]), *keys[2:]) if len(meant) == 1 else keys


def _value(text: str) -> Any:
    """The value of a variable's text: parsed if it is JSON, else the text itself."""
    try:
        return decode(text)
    except ValueError:
        return text


def _set(
    values: dict[str, Any],
    keys: KeyPath,
    value: Any,
    place: Place,
    places: dict[KeyPath, Place],
    problems: list[Problem],
) -> None:
    """Set one value, creating the mappings above it."""
    if not all(keys):
        problems.append(Problem("", "the name has an empty part.", place))
        return
    inner = values
    for index, key in enumerate(keys[:-1], 1):
        previous = inner.get(key)
        inner[key] = dict(previous) if isinstance(previous, Mapping) else {}
        inner = inner[key]
        places.setdefault(keys[:index], place)
    inner[keys[-1]] = value
    places[keys] = place


def is_host(text: str) -> bool:
    """Whether a text is the name or address of a host, and nothing else."""
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def known_secrets(environ: Mapping[str, str], variables: Iterable[str] = ()) -> frozenset[str]:
    """Values of the environment that no output may show: those of the named variables, of variables named
    like keys or passwords, and passwords in URLs."""
    named = set(variables)
    secrets: set[str] = set()
    for name, value in environ.items():
        if name in named or _SECRET.search(name):
            secrets.add(value)
        elif "://" in value and (address := _URL_SECRET.match(value)) is not None:
            secrets |= {value, address.group(1)}
    return frozenset(filter(_is_unlike_text, secrets))


def _is_unlike_text(value: str) -> bool:
    """Whether a value is so unlike ordinary text that masking it harms none."""
    return len(value) >= (_WORD_LENGTH if _WORD.fullmatch(value) else _SECRET_LENGTH)


def secrets_of(settings: Settings, environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Values of the environment that no output may show, the keys that the settings name included."""
    entries = [settings.section("model"), *settings.section("models").values()]
    named = [
        str(entry["api_key_env"])
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("api_key_env")
    ]
    return known_secrets(os.environ if environ is None else environ, named)


# -- checks -------------------------------------------------------------------------------------------------


def _place(places: Mapping[KeyPath, Place], keys: KeyPath) -> Place:
    """The place of a key, or of its nearest parent that has one."""
    return next((places[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in places), SOMEWHERE)


def _misfits(value: Any, keys: Keys, path: KeyPath, places: Mapping[KeyPath, Place]) -> Iterator[Problem]:
    """Unknown keys, each with the nearest known ones, and values of the wrong kind."""
    if value is None or keys is None:
        return
    dotted = ".".join(path)
    if isinstance(keys, Value):
        if not keys.fits(value):
            yield Problem("", f"'{dotted}' takes {keys.what}.", _place(places, path), dotted)
        keys = keys.keys
    elif not isinstance(value, Mapping):
        yield Problem("", f"'{dotted}' takes named values.", _place(places, path), dotted)
    if keys is None or not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        here = (*path, str(key))
        if key in keys or "*" in keys:
            yield from _misfits(inner, keys.get(key, keys.get("*")), here, places)
            continue
        meant = Nearest().of(str(key), keys)
        known = "" if meant else f" Known here: {', '.join(sorted(keys))}."
        message = f"unknown {'key' if path else 'heading'} '{'.'.join(here)}'.{known}"
        yield Problem("", message, _place(places, here), ".".join(here), meant)


def _secrets(value: Any, places: Mapping[KeyPath, Place], path: KeyPath = ()) -> list[Problem]:
    """Problems with secrets written into a settings file, which is kept and shared."""
    problems: list[Problem] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            here = (*path, str(key))
            if (
                _SECRET.search(str(key))
                and not _names_a_variable(here)
                and inner not in (None, "")
                and not isinstance(inner, (Mapping, list))
            ):
                problems.append(_secret(places, here, f"'{'.'.join(here)}'"))
            else:
                problems += _secrets(inner, places, here)
    elif isinstance(value, list):
        for item in value:
            problems += _secrets(item, places, path)
    elif isinstance(value, str) and _URL_SECRET.match(value):
        problems.append(_secret(places, path, f"the password in '{'.'.join(path)}'"))
    return problems


def _names_a_variable(path: KeyPath) -> bool:
    """True for keys whose value is the name of the variable that holds a secret: `mcp.docs.env.TOKEN`."""
    return len(path) == 4 and path[0] == "mcp" and path[2] in ("env", "headers")


def _secret(places: Mapping[KeyPath, Place], path: KeyPath, subject: str) -> Problem:
    variable = "DETENT_STORE" if path[0] == "store" else PREFIX + "__".join(path).upper()
    message = (
        f"{subject} does not belong in the file; secrets come from the environment (for example {variable})."
    )
    return Problem("", message, _place(places, path), ".".join(path))
