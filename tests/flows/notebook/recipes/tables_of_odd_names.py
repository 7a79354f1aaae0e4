"""Column names that are anything but identifiers."""

from __future__ import annotations

ODD_NAMES = (
    'a"b', "it's", "x\ny", "class", "</add-code2run>", "<<KEEP>>", "{name}", "'] + [1/0", "中文", "", "a__b", "model",
    "# no comment", "w" * 80, "\\n",
)  # fmt: skip
