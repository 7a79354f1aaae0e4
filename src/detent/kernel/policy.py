"""How often to try again, and when to stop trying: retry and circuit-breaker rules as values."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from detent.kernel.errors import ConfigurationError

JITTER = 0.25
"""Share by which a wait may be shorter or longer than the doubling says."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts at one piece of work, with growing waits between them.

    Each wait is twice the one before, give or take a quarter, and always between `wait_min` and `wait_max`:
    runs that failed together do not come back together. Equal both and every wait is exactly that long.
    """

    max_attempts: int = 3
    """All attempts together, the first included."""
    wait_min: float = 1.0
    wait_max: float = 10.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigurationError(f"max_attempts is {self.max_attempts}; at least 1 attempt is made.")
        if not 0 <= self.wait_min <= self.wait_max:
            raise ConfigurationError(
                f"Retry waits must satisfy 0 <= wait_min <= wait_max; "
                f"got {self.wait_min} and {self.wait_max}."
            )

    @classmethod
    def retries(cls, max_retries: int, wait_min: float = 1.0, wait_max: float = 10.0) -> RetryPolicy:
        """The policy that makes `max_retries` attempts after the first."""
        return cls(max_retries + 1, wait_min, wait_max)

    def backoff(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` as the doubling says, without jitter."""
        return 0.0 if attempt <= 1 else min(self.wait_max, self.wait_min * 2 ** min(attempt - 2, 62))

    def wait_before(self, attempt: int, run_id: str) -> float:
        """Seconds a run waits before attempt number `attempt` (the first is 1 and waits for nothing).

        The jitter is drawn from the run's id and the attempt, so that the same run always waits as long.
        """
        wait = self.backoff(attempt)
        if not wait:
            return 0.0
        shortest = max(self.wait_min, wait * (1 - JITTER))
        longest = min(self.wait_max, wait * (1 + JITTER))
        return float(shortest + (longest - shortest) * _drawn(f"{run_id}/{attempt}"))


def _drawn(seed: str) -> float:
    """A number from 0 to 1 that looks random and depends on the seed alone."""
    return int.from_bytes(blake2b(seed.encode("utf-8", "surrogatepass"), digest_size=6).digest()) / (1 << 48)


ONCE = RetryPolicy(max_attempts=1)
USUAL = RetryPolicy()


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """After `failures` in a row a step or tool is left alone for `cooldown` seconds, then tried once."""

    failures: int = 5
    cooldown: float = 30.0

    def __post_init__(self) -> None:
        if self.failures < 1 or self.cooldown <= 0:
            raise ConfigurationError("A breaker needs at least 1 failure and a cooldown above 0 seconds.")
