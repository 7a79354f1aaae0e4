"""The command `trust`: show what a project would run and send, and remember that a person allows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from detent.cli import options

if TYPE_CHECKING:
    from detent.runtime.settings import Settings
    from detent.runtime.trust import Trust

MOST_FILES = 40
"""Files that are listed one by one."""


def add(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(rich_help_panel="This installation")(trust)


def trust(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The project; the working folder when left out.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show, and change nothing.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Trust the project no longer.")] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Trust the folder whatever is in it: for your own projects.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Keys need --allow-key.")] = False,
    allow_key: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-key", metavar="NAME=HOST", help="Let this key go to this host. May be repeated."
        ),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> int:
    """Show what a project runs and where it sends keys, and trust it.

    Nothing of a project runs before. What is trusted is the content of the files: a change asks again.
    """
    from detent.cli.output import clean, say, say_json, warn
    from detent.runtime.trust import Trust

    pairs = [_pair(one) for one in allow_key or ()]
    settings = _settings(folder, config)
    found = Trust.of(settings)
    if show or json:
        facts = _facts(found, settings)
        say_json(facts) if json else _tell(found, facts)
        return 0
    if revoke:
        gone = found.revoke()
        say(f"{clean(str(found.root))} is {'not trusted any more' if gone else 'not trusted'}.")
        return 0
    for name, host in pairs:
        _allow(name, host)
    if found.state == "trusted" and not always and not found.everything and not found.record.get("suspended"):
        refused = _refused(settings)
        if not refused or pairs:
            say(f"{clean(str(found.root))} is trusted.")
            return 0
    if pairs and folder is None and found.state == "nothing":
        return 0
    _tell(found, _facts(found, settings))
    if not yes and not _confirmed("Trust this project?"):
        warn("Nothing was changed.")
        return 1
    found.grant(always=always)
    for use in _refused(settings):
        if not yes and _confirmed(f"Let {use.variable} go to {use.host} ({use.where})?"):
            _allow(use.variable, use.host)
        else:
            warn(f"{clean(use.variable)} is not sent to {clean(use.host)}. To allow it: {_command(use)}")
    how = "whatever is in it" if always else "as it is now"
    say(f"{clean(str(found.root))} is trusted, {how}.")
    return 0


def _settings(folder: Path | None, config: str | None) -> Settings:
    from detent.kernel.errors import ConfigurationError
    from detent.runtime.trust import settings_to_look_at

    if folder is not None and not folder.is_dir():
        raise ConfigurationError(f"There is no folder {folder}.")
    return settings_to_look_at(folder.resolve() if folder is not None else None, config)


def _refused(settings: Settings) -> list[Any]:
    from detent.runtime.key_hosts import KeyHosts

    return KeyHosts(settings).refused()


def _facts(found: Trust, settings: Settings) -> dict[str, Any]:
    from detent.runtime.key_hosts import KeyHosts, key_uses

    files = found.files
    _ = files.digests  # read now: what is trusted later is what is shown here
    changed = found.changed if found.state == "changed" else []
    hosts = KeyHosts(settings)
    return {
        "folder": str(found.root),
        "state": found.state,
        "files": list(files.files),
        "changed": changed,
        "plugins": files.plugins,
        "programs": {name: list(command) for name, command in files.programs.items()},
        "keys": [
            {
                "key": use.variable, "host": use.host, "where": use.where,
                "allowed": not use.project or hosts.allowed(use.variable, use.host),
            }
            for use in key_uses(settings)
        ],
    }  # fmt: skip


def _tell(found: Trust, facts: dict[str, Any]) -> None:
    from detent.cli.output import clean, paint, say

    words = {
        "nothing": "nothing here has to be trusted", "trusted": "trusted", "untrusted": "not trusted",
        "changed": "changed since it was trusted",
        "suspended": f"not trusted any more: {found.record.get('suspended')}",
    }  # fmt: skip
    say(f"{paint(clean(facts['folder']), bold=True)}: {clean(words[found.state])}")
    listed = facts["files"]
    rows = [f"{name}{'  (changed)' * (name in facts['changed'])}" for name in listed[:MOST_FILES]]
    gone = [f"{name}  (gone)" for name in facts["changed"] if name not in listed]
    more = [f"… and {len(listed) - MOST_FILES:,} more"] if len(listed) > MOST_FILES else []
    keys = [
        f"{one['key']} → {one['host']}  ({one['where']}{'' if one['allowed'] else ', not allowed yet'})"
        for one in facts["keys"]
    ]
    programs = [f"{' '.join(words)}  ({name})" for name, words in facts["programs"].items()]
    for heading, lines in (
        ("files that configure or run", [*rows, *gone, *more]), ("plugins it loads", facts["plugins"]),
        ("programs it starts", programs), ("keys it sends", keys),
    ):  # fmt: skip
        if lines:
            say(f"  {heading}:")
            for line in lines:
                say(f"    {clean(line)}")


def _confirmed(question: str) -> bool:
    """Ask a person; `ConfigurationError` where there is none to ask."""
    import sys

    from detent.kernel.errors import ConfigurationError

    if not sys.stdin.isatty():
        raise ConfigurationError("There is nobody to ask here. Look at the above, then say --yes.")
    return typer.confirm(question, default=False)


def _pair(said: str) -> tuple[str, str]:
    from detent.kernel.errors import ConfigurationError

    name, equals, host = said.partition("=")
    if not equals or not name.strip() or not host.strip() or "/" in host:
        raise ConfigurationError(
            f"--allow-key takes NAME=HOST, such as CRM_TOKEN=crm.firm.example, not '{said}'."
        )
    return name.strip(), host.strip()


def _allow(name: str, host: str) -> None:
    from detent.cli.output import clean, say
    from detent.runtime.key_hosts import allow_key

    allow_key(name, host)
    say(f"{clean(name)} may go to {clean(host)}.")


def _command(use: Any) -> str:
    return f"detent trust --allow-key {use.variable}={use.host}"
