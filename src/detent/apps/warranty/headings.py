"""The headings this application adds to the project file, each with the keys allowed under it."""

from __future__ import annotations

from detent.apps.warranty.settings import headings

_ALL = headings()

orchestration = _ALL["orchestration"]
playbook = _ALL["playbook"]
agent = _ALL["agent"]
mail = _ALL["mail"]
tools = _ALL["tools"]
warranty = _ALL["warranty"]
privacy = _ALL["privacy"]
