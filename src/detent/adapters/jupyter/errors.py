"""What can go wrong with a kernel beside the code it runs."""

from __future__ import annotations

from detent.kernel.errors import DetentError, IntegrationMissing


class KernelDied(DetentError):
    """The kernel's process is gone, or does not answer any more."""


class KernelNotStarted(IntegrationMissing):
    """No kernel could be started."""


class KernelSuperseded(DetentError):
    """A later driver of the run has a kernel of its own."""
