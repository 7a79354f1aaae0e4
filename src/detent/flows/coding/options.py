"""What one request is allowed to do and how far it may go, kept with its run.

They come from the command line and from the settings of a trusted project; nothing that a model, a tool or a
session file says becomes an option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from detent.flows.coding.settings import CodingSettings

OnConfirm = Literal["hold", "deny"]


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """The options of one request."""

    allow: tuple[str, ...] = ()
    """Patterns `TOOL[:PATTERN]` of calls that need no question."""
    deny: tuple[str, ...] = ()
    """Patterns of calls that are refused, whatever else allows them."""
    yes: bool = False
    """Nobody is asked."""
    read_only: bool = False
    """Tools that change anything are not offered."""
    on_confirm: OnConfirm = "hold"
    """What becomes of a question that nobody can answer at once."""
    done_when: str | None = None
    """The command that tells whether the request is really done."""
    check_when: Literal["always", "changed"] = "always"
    strict: bool = False
    max_iterations: int = 40
    timeout_s: float | None = None
    """Seconds the request may take; None: as the settings say."""
    profile: str | None = None
    """The profile of a sub-run; None: the request itself."""
    depth: int = 0
    """How many sub-runs are above this one."""
    check_above: str | None = None
    """The check that a request above this one will run."""

    @classmethod
    def of(cls, settings: CodingSettings, **given: Any) -> RequestOptions:
        """The options that settings give a request; what is `given` on the command line comes on top.

        Patterns of both sources hold together.
        """
        check = settings.done_when
        usual = cls(
            allow=tuple(settings.tools.allow),
            deny=tuple(settings.tools.deny),
            done_when=None if check is None else check.command,
            check_when="always" if check is None else check.when,
            strict=settings.strict_completion,
            max_iterations=settings.max_iterations,
        )
        given = {name: value for name, value in given.items() if value is not None}
        for name in ("allow", "deny"):
            given[name] = (*getattr(usual, name), *given.pop(name, ()))
        return replace(usual, **given)

    @property
    def watched_check(self) -> str | None:
        """The check that will be run in the end: it is noted what commands change of it."""
        return self.done_when or self.check_above

    def for_task(self, profile: str, max_iterations: int, timeout_s: float) -> RequestOptions:
        """The options of a sub-run: the same rules, one level deeper."""
        return replace(
            self, profile=profile, depth=self.depth + 1, max_iterations=max_iterations, timeout_s=timeout_s,
            done_when=None, check_above=self.watched_check,
        )  # fmt: skip

    def to_plain(self) -> dict[str, Any]:
        """As the run keeps them."""
        plain = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RequestOptions:
        """Options as a run has kept them."""
        names = {field.name for field in fields(cls)}
        given = {name: value for name, value in plain.items() if name in names}
        for name in ("allow", "deny"):
            given[name] = tuple(given.get(name) or ())
        return cls(**given)
