"""The flow for a project: its settings, tools of servers, skills, session files and secrets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detent.adapters.guarded import Guarded
from detent.engine.tools import Tool
from detent.flows.coding.flow import CodingFlow
from detent.flows.coding.sessions.folder import SessionFolder, sessions_folder
from detent.flows.coding.sessions.writer import SessionWriter
from detent.flows.coding.settings import CodingSettings, assistant_config, coding_settings
from detent.flows.coding.skills import Skills
from detent.flows.coding.tools.spec import ToolSettings
from detent.kernel.errors import ConfigurationError
from detent.runtime.project_files import ProjectFiles
from detent.runtime.settings import Settings, secrets_of


def coding_flow(settings: Settings) -> CodingFlow:
    """The flow for these settings."""
    own = coding_settings(settings, unknown=False)
    secrets = secrets_of(settings)
    folder = session_folder(settings, own)
    skills = _skills(settings, own)

    return CodingFlow(
        own,
        tools=tool_settings(settings, own),
        further=skills.tools(),
        served=served_tools(settings),
        from_file=lambda session: messages_of(folder, session),
        secrets=secrets,
        writer=SessionWriter(folder),
        skills=skills.listing(),
        assistant=assistant_config(settings, own),
    )


def _skills(settings: Settings, own: CodingSettings) -> Skills:
    """The skills that the settings name.

    Raises:
        ConfigurationError: one cannot be used; the message begins with the place in the settings.
    """
    folders = [settings.base("coding", "skills") / name for name in own.skills]
    try:
        return Skills.read(folders)
    except ConfigurationError as error:
        raise ConfigurationError(f"{settings.place('coding', 'skills')}: {error}") from None


def session_folder(settings: Settings, own: CodingSettings) -> SessionFolder:
    """Where the session files of a project lie."""
    return SessionFolder(
        sessions_folder(settings), secrets=secrets_of(settings), write_legacy_flags=own.write_legacy_flags
    )


def tool_settings(settings: Settings, own: CodingSettings) -> ToolSettings:
    """What the tools may do, and must leave alone."""
    return ToolSettings(
        network=own.network,
        sandbox=own.sandbox,
        pass_env=tuple(own.pass_env),
        protected=tuple(_store_files(settings)),
        guarded=guarded_files(settings),
    )


def guarded_files(settings: Settings) -> Guarded:
    """The files that configure this Detent: only a person lets them be written."""
    files = ProjectFiles(settings)
    return Guarded(lambda: files.guarded)


def _store_files(settings: Settings) -> list[Path]:
    """The store and what lies beside it."""
    return [sessions_folder(settings)]


def served_tools(settings: Settings) -> list[Tool]:
    """Tools of the MCP servers in the settings."""
    if settings.get("mcp") is None:
        return []
    from detent.runtime.mcp import mcp_servers

    return [tool for server in mcp_servers(settings).values() for tool in server.tools]


def messages_of(folder: SessionFolder, session: str) -> Sequence[Any]:
    """The messages in a session's file, as they are found there."""
    record = folder.load(session)
    return () if record is None else record.messages
