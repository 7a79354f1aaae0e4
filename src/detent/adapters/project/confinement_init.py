"""The first process of a confined command: it makes the namespaces, starts the command and ends all with it.

A program of its own, which knows the standard library and nothing of ours; `confinement` runs it, as
`--status FD --env FD [--enter] [--network] [--hide PATH]… [--show PATH]… -- COMMAND…`.

With `--enter` it makes the namespaces itself: a first process stays outside, and waits; a second one is the
init of the new process namespace. Without, it is that init already. When the init ends, the system kills
whatever is left of the command, sessions and groups of their own included. Lines on the descriptor `--status`
say how far it came; the command cannot write there. The command's environment is read from `--env`: in this
process's own it could change what happens outside (`LD_PRELOAD`).
"""

from __future__ import annotations

# What is imported here is imported for every command: `signal`, `typing` and `contextlib` would cost it 4 ms.
# ruff: noqa: SIM105
import _signal  # type: ignore[import-not-found]
import ctypes
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_NOATIME = 1, 2, 4, 8, 32, 1024
MS_NODIRATIME, MS_BIND, MS_REC, MS_SLAVE, MS_RELATIME = 2048, 4096, 16384, 1 << 19, 1 << 21
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
CAP_KILL, CAP_SYS_ADMIN = 5, 21
CAPABILITY_VERSION = 0x20080522
AF_INET, SOCK_DGRAM, SIOCSIFFLAGS, IFF_UP = 2, 2, 0x8914, 1

MOST_PROCESSES = 4096
"""Processes and threads of one command."""
OOM_SCORE = 500
"""Where memory runs out, a command goes before the program that runs it."""
MOMENT = 0.05
"""Seconds in which processes end that were only about to when the command did."""
FORWARDED = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)
NOT_RUN = 125
"""Exit code where the command was not begun."""

libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> None:
    """Run the command; this process exits as it does."""
    at = arguments.index("--")
    command, options = arguments[at + 1 :], arguments[:at]
    network, enter = "--network" in options, "--enter" in options
    report = int(_values(options, "--status")[0])
    os.set_inheritable(report, False)
    environ = _environ(int(_values(options, "--env")[0]))
    # A signal that comes too early waits until there is a command to pass it to.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)
    try:
        if enter:
            _enter_namespaces(network)
            init = os.fork()
            if init:
                os._exit(_code(os.waitpid(init, 0)[1]))
            _check(libc.prctl(PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0))
            own = _arrange(_values(options, "--hide"), _values(options, "--show"), network)
        else:
            own = os.path.exists("/proc/self")
        if os.getpid() != 1:  # its signals would reach processes outside
            raise OSError(0, "no process namespace of its own")
        _check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        os.write(report, b"begun %d\n" % own)
    except OSError as error:
        os.write(report, f"failed {error.errno} {error.strerror}\n".encode())
        os._exit(NOT_RUN)
    os._exit(_run(command, environ, own, report))


def _values(options: list[str], name: str) -> list[str]:
    return [options[at + 1] for at, option in enumerate(options) if option == name]


def _environ(handle: int) -> dict[bytes, bytes]:
    with os.fdopen(handle, "rb") as file:
        file.seek(0)
        pairs = (part.partition(b"=") for part in file.read().split(b"\0") if part)
        return {name: value for name, _, value in pairs}


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


# -- namespaces ---------------------------------------------------------------------------------------------


def _enter_namespaces(network: bool) -> None:
    """Move this process to new namespaces; users keep their ids."""
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | (0 if network else CLONE_NEWNET)
    user, group = os.geteuid(), os.getegid()
    helper = _mapping_helper() if user == 0 else None
    _check(libc.unshare(flags))
    if helper is not None and helper():
        return
    _put("/proc/self/setgroups", "deny")
    _put("/proc/self/uid_map", f"{user} {user} 1")
    _put("/proc/self/gid_map", f"{group} {group} 1")


def _mapping_helper() -> Callable[[], bool]:
    """For root, a function that maps all users, called in the new namespace; False where that is refused.

    It has a process outside do so, which is forked here: only there is the right to map more than oneself.
    """
    maps = [(name, _identity(f"/proc/self/{name}")) for name in ("uid_map", "gid_map")]
    parent = os.getpid()
    go_reading, go_writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(go_writing)
        code = 1
        try:
            if os.read(go_reading, 1):
                for name, mapping in maps:
                    _put(f"/proc/{parent}/{name}", mapping)
                code = 0
        finally:
            os._exit(code)

    def map_all() -> bool:
        os.write(go_writing, b".")
        return _code(os.waitpid(child, 0)[1]) == 0

    os.close(go_reading)
    return map_all


def _identity(path: str) -> str:
    """The mapping under which every id of this namespace keeps its number."""
    with open(path) as file:
        rows = [line.split() for line in file]
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in rows)


def _put(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _try_put(path: str, text: str) -> None:
    try:
        _put(path, text)
    except OSError:
        pass


# -- what the command sees ----------------------------------------------------------------------------------


def _arrange(hidden: list[str], shown: list[str], network: bool) -> bool:
    """Mount what the command is to see and what not; returns whether it has a /proc of its own.

    Without one it sees the processes outside, but may not look into them: they belong to another namespace
    of users.
    """
    _mount("none", "/", None, MS_REC | MS_SLAVE)
    own = _try_mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # Terminals of our own: nothing is written to the one a person sits at.
    _try_mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    for path in hidden:
        _hide(path, [name for name in shown if name.startswith(path + "/")])
    if not network:
        _raise_loopback()
    if own and _release() >= (6, 14):  # before, this limit was the whole machine's
        _try_put("/proc/sys/kernel/pid_max", str(MOST_PROCESSES))
    libc.prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN, 0, 0, 0)  # else root could unmount all this
    return own


def _hide(path: str, shown: list[str]) -> None:
    """Mount nothing over a file, or a folder of which only some entries are shown, and those for reading."""
    try:
        status = os.stat(path)
    except OSError:  # hidden with the folder it is in
        return
    if not stat.S_ISDIR(status.st_mode):
        try:
            _mount("/dev/null", path, None, MS_BIND)
        except FileNotFoundError:  # it has gone since
            pass
        return
    kept = []
    for name in shown:
        try:
            kept.append((name, os.open(name, os.O_PATH | os.O_NOFOLLOW)))  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            continue
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k")
    for name, handle in kept:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            os.mkdir(name)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT))
        _mount(f"/proc/self/fd/{handle}", name, None, MS_BIND | MS_REC)
        _make_read_only(name)
        os.close(handle)
    _make_read_only(path)


def _make_read_only(path: str) -> None:
    """Make a mount read-only; its other flags must stay, or the system refuses."""
    now = os.statvfs(path).f_flag
    pairs = (
        (os.ST_NOSUID, MS_NOSUID), (os.ST_NODEV, MS_NODEV), (os.ST_NOEXEC, MS_NOEXEC),
        (os.ST_NOATIME, MS_NOATIME), (os.ST_NODIRATIME, MS_NODIRATIME), (os.ST_RELATIME, MS_RELATIME),
    )  # fmt: skip
    flags = sum(flag for seen, flag in pairs if now & seen)
    _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = None if kind is None else kind.encode()
    options = data.encode() if data else None
    unsigned = ctypes.c_ulong(flags)
    _check(libc.mount(os.fsencode(source), os.fsencode(target), encoded, unsigned, options))


def _try_mount(source: str, target: str, kind: str, flags: int, data: str = "") -> bool:
    try:
        _mount(source, target, kind, flags, data)
    except OSError:
        return False
    return True


def _raise_loopback() -> None:
    """Bring up the loopback device of a new network, so that programs can talk to themselves."""
    handle = libc.socket(AF_INET, SOCK_DGRAM, 0)
    if handle >= 0:
        request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder)
        libc.ioctl(handle, ctypes.c_ulong(SIOCSIFFLAGS), request.ljust(40, b"\0"))
        os.close(handle)


def _release() -> tuple[int, ...]:
    """The version of the kernel, as far as it is numbers."""
    parts = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


# -- the command --------------------------------------------------------------------------------------------


def _run(command: list[str], environ: dict[bytes, bytes], own: bool, report: int) -> int:
    """Run the command, pass signals on to all that is in the namespace, and return its exit code."""
    for number in FORWARDED:
        _signal.signal(number, _forward)
    child = os.fork()
    if not child:
        _become(command, environ)
    _drop_capabilities()
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, FORWARDED)
    while True:
        pid, status = os.wait()
        if pid == child:
            break
    os.write(report, b"left %d\n" % _left(own))
    return _code(status)


def _forward(number: int, frame: object) -> None:
    try:
        os.kill(-1, number)  # all but this process
    except OSError:
        pass


def _become(command: list[str], environ: dict[bytes, bytes]) -> None:
    """In the child: become the command, in a session of its own."""
    try:
        os.setsid()
        _try_put("/proc/self/oom_score_adj", str(OOM_SCORE))
        _limit_processes()
        for number in (*FORWARDED, _signal.SIGQUIT, _signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, FORWARDED)
        os.execvpe(command[0], command, environ)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(NOT_RUN)


def _limit_processes() -> None:
    if _release() < (5, 14):  # before, this counted all processes of the user
        return
    import resource

    try:
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        least = MOST_PROCESSES if most == resource.RLIM_INFINITY else min(most, MOST_PROCESSES)
        resource.setrlimit(resource.RLIMIT_NPROC, (least, least))
    except (OSError, ValueError):
        pass


def _drop_capabilities() -> None:
    """Give up every right but to send signals: a command that is root could take over this process."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)(1 << CAP_KILL, 1 << CAP_KILL)
    libc.capset(header, data)


def _left(own: bool) -> int:
    """The number of processes that are left a moment after the command has ended."""
    until = time.monotonic() + MOMENT
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        try:
            os.kill(-1, 0)
        except OSError:
            return 0
        if time.monotonic() >= until:
            return max(1, sum(map(str.isdigit, os.listdir("/proc"))) - 1) if own else 1
        time.sleep(MOMENT / 20)


def _code(status: int) -> int:
    """An exit code as shells have it: 128 and the number of the signal that ended the process."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
