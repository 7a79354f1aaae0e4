"""Replacing a text in the bytes of a file: line ends match alike and stay what they were, like all else."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from detent.flows.coding.tools.tree import Deadline

LF, CRLF = b"\n", b"\r\n"
MOST_OCCURRENCES = 100_000
"""Occurrences that are replaced in one go."""
MOST_NEAR = 3
"""Places that are named where a text does not occur."""
LONGEST_NEAR = 6
"""Lines shown of each."""
LONGEST_LINE = 200
SIMILAR = 0.6
SECONDS_NEAR = 1.0
"""Longest time to look for similar lines."""


class Place(NamedTuple):
    """Lines of a file that resemble a text."""

    line: int
    """The first of them, from 1."""
    lines: tuple[str, ...]
    is_same: bool
    """Whether they differ only in white space at the ends of lines."""


class LineText:
    """The bytes of a file, searched without regard to how its lines end."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.plain = raw.replace(CRLF, LF)
        """With one kind of line end."""
        self._long = array("L", _long_ends(raw)) if len(self.plain) < len(raw) else array("L")
        """Where in `plain` the line ends are that have two bytes."""

    def occurrences(self, target: str, most: int, *, overlapping: bool) -> list[int]:
        """Where a text occurs in `plain`, at most so many places."""
        wanted = _plain(target)
        places: list[int] = []
        position = self.plain.find(wanted)
        while position >= 0 and len(places) < most:
            places.append(position)
            position = self.plain.find(wanted, position + (1 if overlapping else len(wanted)))
        return places

    def line_of(self, position: int) -> int:
        """The line, from 1, of a position in `plain`."""
        return self.plain.count(LF, 0, position) + 1

    def replaced(self, places: Sequence[int], target: str, patch: str) -> bytes:
        """The file with the text at these places replaced."""
        wanted = _plain(target)
        pieces: list[bytes] = []
        done = 0
        for place in places:
            start, end = self._raw(place), self._raw(place + len(wanted))
            pieces += [self.raw[done:start], self._patch(start, end, wanted, patch)]
            done = end
        return b"".join([*pieces, self.raw[done:]])

    def replaced_size(self, places: int, target: str, patch: str) -> int:
        """At most how many bytes the file has with the text at so many places replaced."""
        patch_size = len(_plain(patch)) + patch.count("\n")
        return len(self.raw) + places * (patch_size - len(_plain(target)))

    def _raw(self, position: int) -> int:
        """The position in the file of a position in `plain`: of a line end, that of its first byte."""
        return position + bisect_left(self._long, position)

    def _patch(self, start: int, end: int, wanted: bytes, patch: str) -> bytes:
        """A patch in place of a part of the file, with the line ends of that part."""
        lines = patch.replace("\r\n", "\n").encode().split(LF)
        if len(lines) == 1:
            return lines[0]
        ends = [CRLF if is_long else LF for is_long in _ends(self.raw[start:end])]
        usual = self._end_near(start, end)
        if not ends and usual is None:  # the file has no line end: the patch knows best
            return patch.encode()
        chosen = _chosen(wanted.split(LF), lines, ends, usual or LF)
        return b"".join(part for line, end in zip(lines, [*chosen, b""], strict=True) for part in (line, end))

    def _end_near(self, start: int, end: int) -> bytes | None:
        """The line end that follows a part of the file, or else comes before it."""
        near = self.raw.find(LF, end)
        near = self.raw.rfind(LF, 0, start) if near < 0 else near
        if near < 0:
            return None
        return CRLF if self.raw[max(0, near - 1) : near] == b"\r" else LF

    # -- where a text does not occur ------------------------------------------------------------------------

    def nearest(self, target: str) -> list[Place]:
        """The lines that resemble a text most."""
        lines = self.plain.decode("utf-8", "replace").split("\n")
        wanted = target.replace("\r\n", "\n").strip("\n").split("\n")
        stripped = [line.strip() for line in lines]
        first = next((line.strip() for line in wanted if line.strip()), "")
        lead = next((number for number, line in enumerate(wanted) if line.strip()), 0)
        if not first:
            return []
        scores: list[tuple[bool, float, int]] = []
        deadline = Deadline(SECONDS_NEAR)
        matcher = SequenceMatcher(None, b=first[:LONGEST_LINE], autojunk=False)
        whole = [line.strip() for line in wanted]
        for number, line in enumerate(stripped):
            if deadline.over():
                break
            start = max(0, number - lead)
            if line == first:
                scores.append((stripped[start : start + len(whole)] == whole, 1.0, -start))
                continue
            matcher.set_seq1(line[:LONGEST_LINE])
            if matcher.real_quick_ratio() >= SIMILAR <= matcher.quick_ratio():
                score = matcher.ratio()
                if score >= SIMILAR:
                    scores.append((False, score, -start))
        count = min(len(wanted), LONGEST_NEAR)
        return [
            Place(1 - start, tuple(line[:LONGEST_LINE] for line in lines[-start : count - start]), same)
            for same, _, start in sorted(scores, reverse=True)[:MOST_NEAR]
        ]


def _plain(text: str) -> bytes:
    return text.replace("\r\n", "\n").encode()


def _long_ends(raw: bytes) -> list[int]:
    return [match.start() - number for number, match in enumerate(re.finditer(CRLF, raw))]


def _ends(raw: bytes) -> list[bool]:
    """Of each line end, whether it has two bytes."""
    return [line.endswith(b"\r") for line in raw.split(LF)[:-1]]


def _chosen(old: Sequence[bytes], new: Sequence[bytes], ends: Sequence[bytes], usual: bytes) -> list[bytes]:
    """The line ends of new lines: lines that stay keep theirs, others take those of lines they replace."""
    count = len(new) - 1
    same_first = same_last = 0
    while same_first < min(len(ends), count) and old[same_first] == new[same_first]:
        same_first += 1
    while same_last < min(len(ends), count) - same_first and old[-1 - same_last] == new[-1 - same_last]:
        same_last += 1
    chosen: list[bytes] = []
    for number in range(count):
        if number >= count - same_last:
            chosen.append(ends[number - count])
        elif number < len(ends) - same_last:
            chosen.append(ends[number])
        else:
            chosen.append(chosen[-1] if chosen else (ends[-1] if ends else usual))
    return chosen
