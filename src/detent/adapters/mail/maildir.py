"""A mail source over a Maildir: the mails in `new/`, and the unseen ones in `cur/`.

A processed mail moves to `cur/` with the flag S. Its unique name stays the same under any flags, so a ref is
that name.
"""

from __future__ import annotations

import asyncio
import os
import stat

from detent.adapters.mail.folders import FolderSource, loaded, named, written
from detent.adapters.mail.source import Arrival, MailGone
from detent.kernel.errors import ConfigurationError

NEW, CUR = "new", "cur"
SEEN, TRASHED = "S", "T"

TRIES = 5
"""How often to look for a mail that other programs keep renaming."""


class Maildir(FolderSource):
    """A source over a Maildir."""

    def describe(self) -> str:
        return f"Maildir {self.folder}"

    def where(self, ref: str) -> str:
        return f"{named(ref)} in {self.folder}"

    async def list(self) -> tuple[str, ...]:
        refs = await asyncio.to_thread(self._unprocessed)
        self._listed = set(refs)
        return refs

    # -- in a thread ----------------------------------------------------------------------------------------

    def _check(self) -> None:
        missing = [name for name in (CUR, NEW, "tmp") if not (self.folder / name).is_dir()]
        if missing:
            raise ConfigurationError(
                f"{self.folder} is not a Maildir: it has no {', no '.join(f'{name}/' for name in missing)}."
                f" Name the folder that holds cur/, new/ and tmp/."
            )
        for name in (CUR, NEW):
            if not os.access(self.folder / name, os.R_OK | os.W_OK | os.X_OK):
                raise ConfigurationError(
                    f"Mails in {self.folder / name} cannot be read and moved: its permissions forbid it."
                )

    def _unprocessed(self) -> tuple[str, ...]:
        modified: dict[str, int] = {}
        for subfolder in (NEW, CUR):
            with os.scandir(self.folder / subfolder) as entries:
                for entry in entries:
                    base, flags = _split_flags(entry.name)
                    if entry.name.startswith(".") or (subfolder == CUR and {SEEN, TRASHED} & set(flags)):
                        continue
                    try:
                        facts = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # moved by another program meanwhile
                        continue
                    if stat.S_ISREG(facts.st_mode):
                        modified[base] = facts.st_mtime_ns
        return tuple(
            written(base) for base, _ in sorted(modified.items(), key=lambda item: (item[1], item[0]))
        )

    def _present(self) -> set[str]:
        return set(self._unprocessed())

    def _find(self, ref: str) -> tuple[str, str] | None:
        """In which of the two folders the mail is, and under which name."""
        base = named(ref)
        for subfolder in (NEW, CUR):
            for name in os.listdir(self.folder / subfolder):
                if _split_flags(name)[0] == base:
                    return subfolder, name
        return None

    def _fetch(self, ref: str) -> Arrival:
        for _ in range(TRIES):
            if (location := self._find(ref)) is None:
                break
            try:
                return loaded(ref, self.folder / location[0] / location[1], self._max_size)
            except FileNotFoundError:  # renamed between looking and opening
                continue
        raise MailGone(ref, self.describe())

    def _mark(self, ref: str) -> bool:
        for _ in range(TRIES):
            if (location := self._find(ref)) is None:
                return False
            subfolder, name = location
            base, flags = _split_flags(name)
            if subfolder == CUR and SEEN in flags:
                return False
            target = f"{base}:2,{''.join(sorted({*flags, SEEN}))}"
            try:
                os.rename(self.folder / subfolder / name, self.folder / CUR / target)
            except FileNotFoundError:  # another process was faster
                continue
            return True
        return False


def _split_flags(name: str) -> tuple[str, str]:
    """A file name as the mail's unique name and its flags."""
    base, _, info = name.partition(":")
    return base, info[2:] if info.startswith("2,") else ""
