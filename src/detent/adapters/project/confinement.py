"""Running a command in a sandbox of the system, where there is one.

In it a command has processes of its own, which all end with it, and no network unless it is allowed. It does
not see into the processes outside, so their environments are hidden from it, and the folders named to it are
empty. The rest of the file system is as it is: commands need compilers, and write where their user may.

There are two sandboxes, tried in this order: namespaces that `confinement_init` makes, on any Linux that lets
this user make them; and bubblewrap, which some systems let make them where they let no one else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from detent.adapters.project.programs import SHELL, Interrupted, Ran, TimedOut, run_program
from detent.engine.tools import ToolError

Kind = Literal["unshare", "bubblewrap", "none"]

INIT = """
import sys
sys.path.append(sys.argv.pop(1))
import confinement_init
confinement_init.main(sys.argv[1:])
"""
"""Runs the init without our package, and with what Python has compiled of it already."""
DEAF = 'trap "" INT TERM HUP; exec "$@"'
"""Bubblewrap would die of signals that are meant for the command, and take it along."""
OUTSIDE = """
secret=$1
shift
export secret
"$0" -c '"$@"; exit $?' "$0" "$@"
exit $?
"""
"""Runs a command below a process with a secret in its environment."""
PROBE_TIMEOUT = 10.0
LOWEST_HANDLE = 20
"""Shells use the descriptors below."""
LIBRARIES = "LD_LIBRARY_PATH"
"""All that the init is given of our environment; without it Python may not start."""
REFUSALS = {
    errno.EPERM: "the system does not let this user make namespaces (AppArmor, seccomp or a sysctl)",
    errno.EACCES: "the system does not let this user make namespaces (AppArmor, seccomp or a sysctl)",
    errno.ENOSPC: "the system allows no more namespaces (user.max_user_namespaces)",
    errno.ENOSYS: "the system has no namespaces",
    errno.EINVAL: "the system has no namespaces",
}
SHOWN = ("workflows", ".gitignore")
"""Entries of a hidden folder that belong to the project: a command may read them, and git misses none."""
SOCKETS = Path("/proc/net/unix")
LISTENS = 0x10000
"""The flag of a socket that accepts connections."""


class Confined(NamedTuple):
    """The result of a confined command."""

    ran: Ran
    left: bool
    """Whether processes that it had left running were ended."""


class Stopped(Exception):
    """A command was ended before its end: it took too long, or the task that ran it was cancelled."""

    def __init__(self, why: Literal["timeout", "interrupted"], ran: Ran) -> None:
        super().__init__(why)
        self.why = why
        self.ran = ran


@dataclass(frozen=True, slots=True)
class Confinement:
    """The sandbox that commands run in."""

    kind: Kind
    description: str
    """What it is and does, in a line."""
    program: str = ""
    """The file of bubblewrap: where a command finds programs must not decide that."""

    async def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        network: bool = False,
        hidden: Iterable[Path] = (),
        head: int = 100_000,
        tail: int = 0,
        interrupt: float = 5.0,
        started: Callable[[int], Awaitable[None]] | None = None,
    ) -> Confined:
        """Run a command, its errors among its output; whatever it leaves running is ended with it.

        `hidden` are files and folders that it is not to see, in a sandbox. `started` is told the id of a
        process before the command does anything: the command ends with that process. When the task is
        cancelled, the command gets SIGINT and `interrupt` seconds.

        Raises:
            Stopped: the command took too long, or the task was cancelled.
            ToolError: the command was not begun.
        """
        if self.kind == "none":
            ran = await _run(
                command, cwd=cwd, env=env, timeout=timeout, head=head, tail=tail, interrupt=interrupt,
                session=True, started=started,
            )  # fmt: skip
            return Confined(ran, ran.left)
        with _Handles(env) as handles:
            argv = self._wrapped(command, handles, cwd, network, hidden)
            ran = await _run(
                argv, cwd=cwd, env=_launch_environ(), timeout=timeout, head=head, tail=tail,
                interrupt=interrupt, pass_fds=handles.passed, started=started,
            )  # fmt: skip
            begun, left, failure = handles.read()
        if not begun:
            why = failure or _first_line(ran.out) or f"exit code {ran.code}"
            raise ToolError("not_started", f"the sandbox of the command could not be made: {why}.")
        return Confined(ran, left > 0)

    def _wrapped(
        self, command: Sequence[str], handles: _Handles, cwd: Path, network: bool, hidden: Iterable[Path]
    ) -> list[str]:
        """The command line that runs a command in this sandbox."""
        folders, files = _hidden(hidden, cwd, network)
        shown = [folder / name for folder in folders for name in SHOWN if os.path.exists(folder / name)]
        launch = [sys.executable, "-I", "-S", "-c", INIT, str(Path(__file__).parent)]
        launch += ["--status", str(handles.report), "--env", str(handles.environ)]
        if self.kind == "unshare":
            launch += ["--enter", *(["--network"] if network else [])]
            for option, paths in (("--hide", [*folders, *files]), ("--show", shown)):
                launch += [part for path in paths for part in (option, str(path))]
            return [*launch, "--", *command]
        mounts: list[str] = []
        for folder in folders:
            mounts += ["--tmpfs", str(folder)]
            for path in shown:
                mounts += ["--ro-bind", str(path), str(path)] if path.parent == folder else []
            mounts += ["--remount-ro", str(folder)]
        for file in files:
            mounts += ["--ro-bind", "/dev/null", str(file)]
        return [
            SHELL, "-c", DEAF, "sh",
            self.program, "--die-with-parent", "--unshare-pid", "--as-pid-1",
            "--dev-bind", "/", "/", "--proc", "/proc",
            *(() if network else ("--unshare-net",)),
            # Root keeps its rights in bubblewrap; with these it could take the sandbox apart.
            *(("--cap-drop", "CAP_SYS_ADMIN", "--cap-drop", "CAP_SYS_PTRACE") if os.geteuid() == 0 else ()),
            *mounts, "--", *launch, "--", *command,
        ]  # fmt: skip


NONE = Confinement("none", "none")


async def _run(argv: Sequence[str], **options: Any) -> Ran:
    try:
        return await run_program(argv, merged=True, **options)
    except TimedOut as error:
        raise Stopped("timeout", error.ran) from None
    except Interrupted as error:
        raise Stopped("interrupted", error.ran) from None


def _launch_environ() -> dict[str, str]:
    return {LIBRARIES: os.environ[LIBRARIES]} if LIBRARIES in os.environ else {}


class _Handles:
    """What the init of a sandbox is handed: the command's environment, and where to say how far it came."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def __enter__(self) -> _Handles:
        self._reading, writing = os.pipe()
        self.report = _moved(writing)
        self.environ = _moved(os.memfd_create("environ"))
        os.set_blocking(self._reading, False)
        with open(self.environ, "wb", closefd=False) as file:
            file.write(b"\0".join(os.fsencode(f"{name}={value}") for name, value in self._env.items()))
        return self

    @property
    def passed(self) -> tuple[int, int]:
        """The descriptors that the init inherits."""
        return self.report, self.environ

    def read(self) -> tuple[int, int, str]:
        """Whether the command was begun (2: with a /proc of its own), processes it has left, what failed."""
        lines: dict[str, str] = {}
        with contextlib.suppress(BlockingIOError):
            text = os.read(self._reading, 65536).decode("utf-8", "replace")
            lines = {name: rest for name, _, rest in (line.partition(" ") for line in text.splitlines())}
        begun = 1 + int(lines["begun"]) if "begun" in lines else 0
        number, _, failure = lines.get("failed", "0 ").partition(" ")
        return begun, int(lines.get("left", 0)), REFUSALS.get(int(number), failure)

    def __exit__(self, *exc: object) -> None:
        for handle in (self._reading, *self.passed):
            os.close(handle)


def _moved(handle: int) -> int:
    """A descriptor under a number that shells leave alone."""
    import fcntl

    moved = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, LOWEST_HANDLE)
    os.close(handle)
    return moved


def _hidden(paths: Iterable[Path], cwd: Path, network: bool) -> tuple[list[Path], list[Path]]:
    """Existing folders and files to hide, without those in hidden folders or around the working folder."""
    resolved = [Path(path) for path in dict.fromkeys(os.path.realpath(path) for path in paths)]
    usable = [path for path in resolved if os.path.exists(path) and not cwd.is_relative_to(path)]
    folders = [path for path in usable if path.is_dir()]
    folders = [path for path in folders if not any(other in path.parents for other in folders)]
    files = [path for path in usable if not path.is_dir()]
    if not network:
        files += [path for path in _listening_sockets() if path not in files]
    return folders, [path for path in files if not any(folder in path.parents for folder in folders)]


def _listening_sockets() -> list[Path]:
    """Sockets in the file system behind which services of this machine listen: Docker's, an SSH agent's."""
    found: dict[Path, None] = {}
    with contextlib.suppress(OSError):
        for line in SOCKETS.read_bytes().splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[7].startswith(b"/") and int(fields[3], 16) & LISTENS:
                path = Path(os.fsdecode(fields[7]))
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(path.stat().st_mode):
                        found[path.resolve()] = None
    return list(found)


def _first_line(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace").strip()
    return "".join(char if char.isprintable() else "?" for char in text.splitlines()[0])[:200] if text else ""


# -- which one there is -------------------------------------------------------------------------------------

_found: dict[str, Confinement] = {}
"""The sandbox of this process, by the PATH it was looked for in."""


async def confinement() -> Confinement:
    """The sandbox for commands on this machine, tried once in each process."""
    path = os.environ.get("PATH", os.defpath)
    if path not in _found:
        _found[path] = await find_confinement(path)
    return _found[path]


async def find_confinement(path: str) -> Confinement:
    """Find the sandbox for commands by running something in each; `path` is where bubblewrap may be."""
    if sys.platform != "linux" or not sys.executable:
        return Confinement("none", f"none: commands have no sandbox on {sys.platform}")
    candidates = [Confinement("unshare", "unshare")]
    program = shutil.which("bwrap", path=path)
    if program is not None and program.startswith("/"):
        candidates.append(Confinement("bubblewrap", "bubblewrap", program))
    refusals = []
    for candidate in candidates:
        own_proc, refusal = await _try(candidate)
        if not refusal:
            processes = "own processes" if own_proc else "own processes, those outside are listed"
            return replace(candidate, description=f"{candidate.kind}: {processes}, no network unless allowed")
        refusals.append(f"{candidate.kind}: {refusal}")
    if len(candidates) < 2:
        refusals.append("bubblewrap is not installed")
    return Confinement("none", f"none: {'; '.join(refusals)}")


async def _try(sandbox: Confinement) -> tuple[bool, str]:
    """Whether a sandbox gives /proc of its own, and why it is of no use; empty where it is.

    A process outside has something in its environment that must not be seen from inside.
    """
    secret = secrets.token_hex(8)
    look = [SHELL, "-c", "cat /proc/[0-9]*/environ 2>/dev/null; cat /proc/net/dev; echo done"]
    with _Handles({"PATH": os.defpath}) as handles:
        wrapped = sandbox._wrapped(look, handles, Path("/"), False, ())
        try:
            ran = await run_program(
                [SHELL, "-c", OUTSIDE, SHELL, secret, "env", "-u", "secret", *wrapped], cwd=Path("/"),
                env=_launch_environ(), timeout=PROBE_TIMEOUT, head=1_000_000, merged=True,
                pass_fds=handles.passed,
            )  # fmt: skip
        except TimedOut:
            return False, f"no answer within {PROBE_TIMEOUT:g} seconds"
        except ToolError as error:
            return False, error.message
        begun, _, failure = handles.read()
    if not begun:
        return False, failure or _first_line(ran.out) or f"exit code {ran.code}"
    lines = ran.out.splitlines()
    if secret.encode() in ran.out or lines[-1:] != [b"done"]:
        return False, "it does not hide the processes outside"
    if sum(b":" in line for line in lines[-3:]) > 1:
        return False, "it does not take the network away"
    return begun == 2, ""
