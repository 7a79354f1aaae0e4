"""Markdown cells as HTML in which no markup of the cell's own is obeyed and nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from detent.kernel.plain import writable

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

Picture = Callable[[str], str | None]
"""The address of a picture that needs no network, by the path a cell gives; None if there is none."""

_SAFE_LINK = re.compile(r"(?:https?://|mailto:|#|[^:/?#]*(?:[/?#]|$))", re.IGNORECASE)
HIGHEST_LISTED = 3


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading in the contents list."""

    level: int
    text: str
    anchor: str


@dataclass(frozen=True, slots=True)
class RenderedText:
    """A Markdown cell as HTML."""

    html: str
    headings: tuple[Heading, ...]


class MarkdownRenderer:
    """Renders the Markdown cells of one page; anchors are numbered through."""

    def __init__(self, picture: Picture) -> None:
        from markdown_it import MarkdownIt

        self._picture = picture
        self._parser: MarkdownIt = MarkdownIt("commonmark", {"html": False, "linkify": False})
        self._parser.enable(["table", "strikethrough"])
        self._anchors: set[str] = set()

    def render(self, source: str, *, skip_title: str | None = None) -> RenderedText:
        """The HTML of a cell. A first heading of level 1 with the text `skip_title` is left out."""
        tokens = self._parser.parse(writable(source))
        if skip_title is not None and _is_title(tokens, skip_title):
            tokens = tokens[3:]
        headings = []
        for token, content in pairwise(tokens):
            if token.type == "heading_open":
                level, text = int(token.tag[1:]), _text_of(content)
                anchor = self._anchor(text)
                token.attrSet("id", anchor)
                if 1 < level <= HIGHEST_LISTED and token is tokens[0]:
                    headings.append(Heading(level, text, anchor))
        for token in tokens:
            for child in token.children or ():
                self._tame(child)
        html = self._parser.renderer.render(tokens, self._parser.options, {})
        html = html.replace("<table>", '<div class="wide" tabindex="0"><table>')
        return RenderedText(html.replace("</table>", "</table></div>"), tuple(headings))

    def _tame(self, token: Token) -> None:
        """Keep links to be followed, and pictures that are here; a picture elsewhere becomes its name."""
        if token.type == "link_open":
            address = str(token.attrGet("href") or "")
            if not _SAFE_LINK.match(address):
                token.attrSet("href", "#")
            token.attrSet("rel", "noopener noreferrer")
        elif token.type == "image":
            picture = self._picture(str(token.attrGet("src") or ""))
            if picture is None:
                token.type, token.tag, token.children = "text", "", None
                token.content = f"[picture: {token.content or token.attrGet('src')}]"
            else:
                token.attrSet("src", picture)

    def _anchor(self, text: str) -> str:
        slug = re.sub(r"[^\w]+", "-", text.lower()).strip("-") or "part"
        anchor, number = slug, 1
        while anchor in self._anchors:
            number += 1
            anchor = f"{slug}-{number}"
        self._anchors.add(anchor)
        return anchor


def _is_title(tokens: Sequence[Token], title: str) -> bool:
    return (
        len(tokens) >= 3
        and tokens[0].type == "heading_open"
        and tokens[0].tag == "h1"
        and _text_of(tokens[1]).strip() == title.strip()
    )


def _text_of(token: Token) -> str:
    return "".join(child.content for child in token.children or ()) or token.content


def contents_list(headings: Sequence[Heading]) -> str:
    """Links to stages, and under each to its steps."""
    parts: list[str] = []
    inside = False
    for heading in headings:
        link = f'<a href="#{escape(heading.anchor)}">{escape(heading.text)}</a>'
        if heading.level == 2:
            parts.append(("</ol></li>" if inside else "") + f"<li>{link}<ol>")
            inside = True
        else:
            parts.append(f"<li>{link}</li>")
    return f"<ol>{''.join(parts)}{'</ol></li>' if inside else ''}</ol>" if parts else ""
