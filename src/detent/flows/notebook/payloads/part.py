"""Reading an element part by part: what is required, what may be repeated, and what nobody asked for."""

from __future__ import annotations

import math

from detent.flows.notebook.payloads.element import Element
from detent.flows.notebook.payloads.findings import Findings
from detent.flows.notebook.payloads.payload_error import MISSING, VALUE, quoted

TRUE_FALSE = ("true", "false")


class Part:
    """An element of a payload. One that is missing is empty, and its problem is reported once."""

    def __init__(self, element: Element, path: str, findings: Findings, *, missing: bool = False) -> None:
        self.element = element
        self.path = path
        self.findings = findings
        self.missing = missing
        self.used = False
        """Whether somebody asked for it."""
        self._read: set[str] = set()
        """Attributes that were asked for."""
        self._children: list[Part] | None = None

    def __bool__(self) -> bool:
        return not self.missing

    @property
    def line(self) -> int:
        """The line of the start tag."""
        return self.element.line

    @property
    def body(self) -> str:
        """The text of the element."""
        return self.element.text

    def is_at(self, part: str) -> None:
        """Say that a part of the value, such as `stages[2]`, is read from here."""
        self.findings.places[part] = (self.path, self.line)

    # -- children -------------------------------------------------------------------------------------------

    @property
    def children(self) -> list[Part]:
        """All children, in document order."""
        if self._children is None:
            tags = [child.tag for child in self.element.children]
            numbers: dict[str, int] = {}
            self._children = []
            for child in self.element.children:
                numbers[child.tag] = numbers.get(child.tag, 0) + 1
                number = f"[{numbers[child.tag]}]" if tags.count(child.tag) > 1 else ""
                self._children.append(Part(child, f"{self.path}/{child.tag}{number}", self.findings))
        return self._children

    def many(self, *tags: str) -> list[Part]:
        """The children of these tags, in document order."""
        found = [part for part in self.children if part.element.tag in tags]
        for part in found:
            part.used = True
        return found

    def everywhere(self, *tags: str) -> list[Part]:
        """The elements of these tags at any depth, in document order."""
        found: list[Part] = []
        for part in self.children:
            inner = [part] if part.element.tag in tags else part.everywhere(*tags)
            part.used = part.used or bool(inner)
            found.extend(inner)
        return found

    def one(self, tag: str, *, required: bool = False) -> Part:
        """The child of a tag. Of several the first is kept (R9)."""
        found = self.many(tag)
        if len(found) > 1:
            self.findings.rules.add("R9")
            for other in found[1:]:
                self.findings.flag(f"unused: {other.path}")
        if found:
            return found[0]
        if required and self:
            self.findings.refuse(MISSING, f"<{tag}> is missing", self.path, self.line)
        return Part(Element(tag, self.line), f"{self.path}/{tag}", self.findings, missing=True)

    def text(self, tag: str, *, required: bool = False, filled: bool = False) -> str:
        """The text of a child; `filled`: it must not be empty."""
        part = self.one(tag, required=required)
        if filled and part and not part.body:
            self.findings.refuse(MISSING, f"<{tag}> is empty", part.path, part.line)
        return part.body

    def chosen(self, tag: str, allowed: tuple[str, ...]) -> str:
        """The text of a required child, one of the allowed words."""
        part = self.one(tag, required=True)
        return self.findings.choice(part.body, allowed, part.path, part.line) if part else allowed[0]

    def at(self, path: str) -> Part:
        """The element at a path; `//tag` is the first of this tag at any depth."""
        part = self
        if path.startswith("//"):
            tag, _, path = path[2:].partition("/")
            found = self.everywhere(tag)
            part = found[0] if found else self.one(tag)
        for tag in path.split("/") if path else ():
            part = part.one(tag)
        return part

    def first(self, *paths: str, required: bool = True) -> Part:
        """The element at the first of these paths that has one."""
        for path in paths:
            if part := self.at(path):
                return part
        if required and self:
            self.findings.refuse(MISSING, f"<{paths[0]}> is missing", self.path, self.line)
        return self.at(paths[0])

    def all_text(self) -> str:
        """The texts of the element and of everything in it."""
        texts = [self.body]
        for part in self.children:
            part.used = True
            texts.append(part.all_text())
        return "; ".join(text for text in texts if text)

    # -- attributes -----------------------------------------------------------------------------------------

    def attribute(self, name: str, *, required: bool = False) -> str | None:
        """The value of an attribute."""
        self._read.add(name)
        value = self.element.attributes.get(name)
        if required and self and (value is None or not value.strip()):
            self.findings.refuse(MISSING, f"the attribute '{name}' is missing", self.path, self.line)
        return value

    def chosen_attribute(self, name: str, allowed: tuple[str, ...], *, required: bool = True) -> str | None:
        """The value of an attribute, one of the allowed words."""
        value = self.attribute(name, required=required)
        if value is None or not (value.strip() or not required):
            return allowed[0] if required else None
        return self.findings.choice(value, allowed, f"{self.path}/@{name}", self.line)

    def is_true(self, name: str, *, required: bool = False) -> bool:
        """Whether an attribute says true."""
        return self.chosen_attribute(name, TRUE_FALSE, required=required) == "true"

    # -- numbers --------------------------------------------------------------------------------------------

    def count(self) -> int:
        """The body as a whole number from 0."""
        text = self.body.strip()
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        if self:
            self.findings.refuse(VALUE, f"{quoted(text)} is no number of steps", self.path, self.line)
        return 0

    def percentage(self) -> float:
        """The body as a percentage, with or without its sign."""
        text = self.body.strip().removesuffix("%").strip()
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if 0 <= value <= 100:
            return value
        if self:
            self.findings.refuse(VALUE, f"{quoted(text)} is no percentage", self.path, self.line)
        return 0.0

    # -- the rest -------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Flag what was not asked for, here and in all parts that were."""
        for name in self.element.attributes:
            if name not in self._read:
                self.findings.flag(f"unused: {self.path}/@{name}")
        for part in self.children:
            if part.used:
                part.finish()
            else:
                self.findings.flag(f"unused: {part.path}")
        if self.element.children and self.element.text:
            self.findings.flag(f"unused: text in {self.path}")
