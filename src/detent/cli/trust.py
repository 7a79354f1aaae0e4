"""The command `trust`: shows what a project would run and send, and records that a person allows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli.options import Options, takes

if TYPE_CHECKING:
    from detent.runtime.settings import Settings
    from detent.runtime.trust import Trust

MOST_FILES = 40
"""Most files that are listed one by one."""


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="This installation")(trust)


@takes("json", "config")
def trust(
    options: Options,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The project; the working folder when left out.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Show the project's trust and change nothing.")
    ] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Stop trusting the project.")] = False,
    always: Annotated[
        bool,
        typer.Option(
            "--always", help="Trust the folder, with all present and future content: for your own projects."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Keys need --allow-key.")] = False,
    allow_key: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-key", metavar="NAME=HOST", help="Let this key go to this host. May be repeated."
        ),
    ] = None,
    disallow_key: Annotated[
        list[str] | None,
        typer.Option("--disallow-key", metavar="NAME=HOST", help="Withdraw an --allow-key. May be repeated."),
    ] = None,
) -> int:
    """Show what a project runs and which keys it sends; trust it.

    Nothing of a project runs before. What is trusted is the content of the files: a change asks again.
    """
    from detent.cli.output import clean, say, say_json, warn
    from detent.runtime.trust import Trust

    pairs = [_pair(pair) for pair in allow_key or ()]
    settings = _settings(folder, options.config)
    standing = Trust.of(settings)
    if show or options.json:
        facts = _facts(standing, settings)
        if options.json:
            say_json(facts)
        else:
            _print_trust(standing, facts)
            _print_allowed_keys(facts)
        return 0
    for pair in disallow_key or ():
        _disallow(settings, pair)
    if revoke:
        gone = standing.revoke()
        say(f"{clean(str(standing.root))} is {'not trusted any more' if gone else 'not trusted'}.")
        _print_kept_keys(settings)
    if revoke or (disallow_key and not pairs and not always):
        return 0
    for name, host in pairs:
        _allow(name, host)
    if (
        standing.state == "trusted"
        and not always
        and not standing.everything
        and not standing.record.get("suspended")
    ):
        refused = _refused(settings)
        if not refused or pairs:
            say(f"{clean(str(standing.root))} is trusted.")
            return 0
    if pairs and folder is None and standing.state == "nothing":
        return 0
    _print_trust(standing, _facts(standing, settings))
    question = "Trust this project as it is now?"
    if always:
        question = f"Trust {standing.root} and everything below it, with all present and future content?"
    if not yes and not _confirmed(clean(question)):
        warn("Nothing was changed.")
        return 1
    standing.grant(always=always)
    for use in _refused(settings):
        if not yes and _confirmed(f"Let {use.variable} go to {use.host} ({use.where})?"):
            _allow(use.variable, use.host)
        else:
            warn(f"{clean(use.variable)} is not sent to {clean(use.host)}. To allow it: {_command(use)}")
    how = "with all present and future content" if always else "as it is now"
    say(f"{clean(str(standing.root))} is trusted, {how}.")
    return 0


def _settings(folder: Path | None, config: str | None) -> Settings:
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.trust import settings_to_look_at

    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder}.")
    return settings_to_look_at(folder.resolve() if folder is not None else None, config)


def _refused(settings: Settings) -> list[Any]:

    from detent.runtime.key_uses import refused_uses

    return refused_uses(settings)


def _facts(trust: Trust, settings: Settings) -> dict[str, Any]:
    from detent.runtime.key_hosts import KeyHosts, allowed_keys
    from detent.runtime.key_uses import key_uses

    files = trust.files
    _ = files.digests  # read now, so that exactly the files shown here are trusted later
    changed = trust.changed if trust.state == "changed" else []
    hosts = KeyHosts(settings)
    return {
        "folder": str(trust.root),
        "state": trust.state,
        "files": list(files.files),
        "changed": changed,
        "plugins": files.plugins,
        "programs": {name: list(command) for name, command in files.programs.items()},
        "writes": _writes(settings),
        "permissions": _permissions(settings),
        "models": _models(settings),
        "keys": [
            {
                "key": use.variable, "host": use.host, "where": use.where,
                "allowed": not use.project or hosts.allowed(use.variable, use.host),
            }
            for use in key_uses(settings)
        ],
        "allowed_keys": [
            {"key": key.variable, "host": key.host, "by": key.by} for key in allowed_keys(settings)
        ],
    }  # fmt: skip


def _writes(settings: Settings) -> dict[str, str]:
    """Places the project makes Detent write to, by setting."""
    from detent.runtime.store_url import shown_url, store_url

    places = {"store": shown_url(store_url(settings))} if settings.of_project("store") else {}
    log = settings.get("logging", "file")
    return places | ({"logging.file": str(log)} if log and settings.of_project("logging", "file") else {})


def _permissions(settings: Settings) -> dict[str, Any]:
    """What the project lets agents do without a question, by setting."""
    from detent.runtime.plugs import plugs

    return {
        name: value
        for plug in plugs()
        for name, value in plug.permissions(settings).items()
        if settings.of_project(*name.split("."))
    }


def _models(settings: Settings) -> dict[str, str]:
    """Addresses of models to which the project has prompts and files sent, by setting."""
    from detent.runtime.store_url import shown_url

    models = settings.section("models")
    return {
        f"models.{name}.base_url": shown_url(str(entry["base_url"]))
        for name, entry in models.items()
        if isinstance(entry, Mapping) and entry.get("base_url") and settings.of_project("models", str(name))
    }


def _print_trust(trust: Trust, facts: dict[str, Any]) -> None:
    from detent.cli.output import clean, paint, say

    words = {
        "nothing": "nothing here has to be trusted", "trusted": "trusted", "untrusted": "not trusted",
        "changed": "changed since it was trusted",
        "suspended": f"not trusted any more: {trust.record.get('suspended')}",
    }  # fmt: skip
    say(f"{paint(clean(facts['folder']), bold=True)}: {clean(words[trust.state])}")
    listed = facts["files"]
    rows = [f"{name}{'  (changed)' * (name in facts['changed'])}" for name in listed[:MOST_FILES]]
    gone = [f"{name}  (gone)" for name in facts["changed"] if name not in listed]
    more = [f"… and {len(listed) - MOST_FILES:,} more"] if len(listed) > MOST_FILES else []
    keys = [
        f"{key['key']} → {key['host']}  ({key['where']}{'' if key['allowed'] else ', not allowed yet'})"
        for key in facts["keys"]
    ]
    programs = [f"{' '.join(words)}  ({name})" for name, words in facts["programs"].items()]
    for heading, lines in (
        ("files that configure or run", [*rows, *gone, *more]), ("plugins it loads", facts["plugins"]),
        ("programs it starts", programs),
        ("where it writes", [f"{place}  ({name})" for name, place in facts["writes"].items()]),
        ("what agents may do unasked", [_permission(*item) for item in facts["permissions"].items()]),
        ("models it sends prompts and files to", [f"{url}  ({key})" for key, url in facts["models"].items()]),
        ("keys it sends", keys),
    ):  # fmt: skip
        if lines:
            say(f"  {heading}:")
            for line in lines:
                say(f"    {clean(line)}")


def _permission(name: str, value: Any) -> str:
    shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value).lower()
    return f"{name}: {shown}"


def _print_allowed_keys(facts: dict[str, Any]) -> None:
    """Print the hosts the user allows for each key."""
    from detent.cli.output import clean, say

    if facts["allowed_keys"]:
        say("  keys you allow, in every project:")
    for key in facts["allowed_keys"]:
        say(f"    {clean(key['key'])} → {clean(key['host'])}  ({key['by']})")


def _print_kept_keys(settings: Settings) -> None:
    """Print the keys that the project uses and that stay allowed."""
    from detent.cli.output import clean, say
    from detent.runtime.key_hosts import REMEMBERED, allowed_keys
    from detent.runtime.key_uses import key_uses

    remembered = {allowed[:2] for allowed in allowed_keys(settings) if allowed.by == REMEMBERED}
    for variable, host in sorted({use[:2] for use in key_uses(settings)} & remembered):
        say(
            f"{clean(variable)} may still go to {clean(host)}, whichever project sends it there. "
            f"To withdraw that: detent trust --disallow-key {clean(variable)}={clean(host)}"
        )


def _confirmed(question: str) -> bool:
    """Ask a person at the terminal; `ConfigurationError` without a terminal."""
    import sys

    from detent.kernel.errors import ConfigurationError

    if not sys.stdin.isatty():
        raise ConfigurationError("There is no terminal to ask at. Review the above, then confirm with --yes.")
    return typer.confirm(question, default=False)


def _pair(text: str) -> tuple[str, str]:
    """The key and the host of `--allow-key`; `ConfigurationError` for anything but a bare host."""
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.settings import NO_HOST, is_host

    name, _, host = (part.strip() for part in text.partition("="))
    if not name or not is_host(host):
        raise ConfigurationError(
            f"--allow-key takes NAME=HOST, such as CRM_TOKEN=crm.firm.example, with no {NO_HOST}; "
            f"not '{text}'."
        )
    return name, host


def _allow(name: str, host: str) -> None:
    from detent.cli.output import clean, say
    from detent.runtime.key_hosts import allow_key

    allow_key(name, host)
    say(f"{clean(name)} may go to {clean(host)}.")


def _disallow(settings: Settings, text: str) -> None:
    """Withdraw an `--allow-key`, in any form that an earlier version accepted."""
    from detent.cli.output import clean, say
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.key_hosts import BUILT_IN, allowed_keys, disallow_key

    name, _, host = (part.strip() for part in text.partition("="))
    if not name or not host:
        raise ConfigurationError(
            f"--disallow-key takes NAME=HOST, such as CRM_TOKEN=crm.firm.example; not '{text}'."
        )
    gone = disallow_key(name, host)
    host = host.lower().rstrip(".")
    if any((name, host) == allowed[:2] for allowed in allowed_keys(settings)):
        raise ConfigurationError(
            f"{name} may go to {host} because your own settings say so: take it out of `keys` there."
        )
    if host in BUILT_IN.get(name, ()):
        raise ConfigurationError(f"{name} may always go to {host}: it is the host the key is made for.")
    if gone:
        say(f"{clean(name)} may not go to {clean(host)} any more.")
    else:
        say(f"{clean(name)} was not allowed to go to {clean(host)}.")


def _command(use: Any) -> str:
    return f"detent trust --allow-key {use.variable}={use.host}"
