"""The text of cells: values written into code, and cells put together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pprint import pformat

_SLOT = re.compile(r"<<([A-Z][A-Z_]*)>>")


def literal(value: object) -> str:
    """Write a plain value as Python code, over several lines if one is too short.

    Column names, problem texts and paths enter code this way and no other.
    """
    return pformat(value, width=100, sort_dicts=False)


def fill(template: str, slots: Mapping[str, str]) -> str:
    """Put code into the `<<SLOTS>>` of a template.

    What is put in is not searched for slots again, so a column may be named like one.

    Raises:
        KeyError: the template has a slot that is not given.
    """
    return cell(_SLOT.sub(lambda slot: slots[slot[1]], template))


def cell(*parts: str) -> str:
    """Join pieces of code, two empty lines between them."""
    return "\n\n\n".join(part.strip("\n") for part in parts if part.strip())
