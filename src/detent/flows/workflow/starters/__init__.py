"""Templates of workflow files: commented, checked by the tests, copied under a new name."""

from __future__ import annotations

from importlib.resources import files


def starter(template: str, name: str) -> str:
    """The text of a starter under a name."""
    text = files(__name__).joinpath(f"{template}.yaml").read_text(encoding="utf-8")
    # The file's own name occurs in its `name` and in the commands that its comments suggest.
    words = ("name:", "validate", "viz", "show", "run")
    for word in words:
        text = text.replace(f"{word} {template}", f"{word} {name}")
    return text
