"""The actions every workflow may name. They decide and propose; what is done is done by tools."""

from __future__ import annotations

from detent.flows.workflow import generators
from detent.flows.workflow.actions import (
    commands,
    files,
    git,
    messages,
    notify,
    tables,
    text,
    waiting,
    web,
)

SHIPPED = (files, text, web, commands, git, messages, tables, waiting, notify, generators)
"""Modules a registry collects: built-in actions and generators."""
