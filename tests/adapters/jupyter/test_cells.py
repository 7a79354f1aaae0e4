"""Cells in a real kernel: what they print, raise and show, and how each ends. N-34, N-87."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal

import pytest

from detent.adapters.jupyter.kernel_process.output_limit import (
    FIGURE_LIMIT,
    FIGURE_MARKER,
    TEXT_LIMIT,
    TEXT_MARKER,
    TRACEBACK_LIMIT,
)
from tests.adapters.jupyter.conftest import MEMORY, Notebook

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestOutputs:
    async def test_a_cell_prints_and_gives_its_value(self, notebook: Notebook) -> None:
        result = await notebook.run("print('Daten: 你好'); 40 + 2")
        assert result.status == "ok"
        assert result.error is None
        stream, value = result.outputs
        assert (stream.output_type, stream.name, stream.text) == ("stream", "stdout", "Daten: 你好\n")
        assert (value.output_type, value.text) == ("execute_result", "42")
        assert value.data == {"text/plain": "42"}
        assert result.execution_count == value.execution_count

    async def test_each_cell_counts_one(self, notebook: Notebook) -> None:
        first = await notebook.run("1")
        second = await notebook.run("2")
        assert first.execution_count is not None
        assert second.execution_count == first.execution_count + 1

    async def test_chunks_of_a_stream_are_joined_and_streams_keep_order(self, notebook: Notebook) -> None:
        result = await notebook.run(
            "import sys\n"
            "for n in range(5):\n    print(n); sys.stdout.flush()\n"
            "print('a', file=sys.stderr); sys.stderr.flush()\nprint('b')"
        )
        assert [(output.name, output.text) for output in result.outputs] == [
            ("stdout", "0\n1\n2\n3\n4\n"),
            ("stderr", "a\n"),
            ("stdout", "b\n"),
        ]

    async def test_an_exception_is_an_output_and_no_error_of_the_engine(self, notebook: Notebook) -> None:
        result = await notebook.run("print('before')\n{}['price']")
        assert result.status == "error"
        assert result.error == "KeyError: 'price'"
        error = result.outputs[-1]
        assert (error.output_type, error.ename, error.evalue) == ("error", "KeyError", "'price'")
        assert any("line 2" in line for line in error.traceback)
        assert "\x1b[" not in error.text

    async def test_code_that_does_not_parse_is_an_error_of_the_cell(self, notebook: Notebook) -> None:
        result = await notebook.run("for")
        assert result.status == "error"
        assert str(result.error).startswith("SyntaxError")

    async def test_leaving_the_interpreter_is_an_error_of_the_cell(self, notebook: Notebook) -> None:
        result = await notebook.run("import sys; sys.exit(4)")
        assert (result.status, result.error) == ("error", "SystemExit: 4")
        assert notebook.kernel.is_alive()

    async def test_a_figure_is_a_picture(self, notebook: Notebook) -> None:
        result = await notebook.run("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()")
        shown = result.outputs[-1]
        assert shown.output_type == "display_data"
        assert shown.data["image/png"].startswith("iVBOR")
        assert shown.text.startswith("<Figure size")

    async def test_cleared_and_updated_outputs_show_their_last_state(self, notebook: Notebook) -> None:
        result = await notebook.run(
            "from IPython.display import clear_output, display\n"
            "print('gone'); clear_output(wait=True)\n"
            "handle = display('first', display_id=True); handle.update('last')"
        )
        assert [output.text for output in result.outputs] == ["'last'"]

    async def test_half_a_character_does_not_stop_the_reply(self, notebook: Notebook) -> None:
        result = await notebook.run("print('\\ud800'); '\\udfff'")
        assert result.status == "ok"
        assert result.outputs[0].text == "\\ud800\n"

    async def test_input_is_refused(self, notebook: Notebook) -> None:
        result = await notebook.run("input('name? ')")
        assert result.status == "error"
        assert str(result.error).startswith("StdinNotImplementedError")

    async def test_standard_input_is_empty(self, notebook: Notebook) -> None:
        assert await notebook.text("import sys; print(repr(sys.stdin.read()))") == "''\n"

    async def test_several_cells_at_once_run_one_after_the_other(self, notebook: Notebook) -> None:
        results = await asyncio.gather(*(notebook.run(f"print({number})") for number in range(4)))
        assert [result.outputs[0].text for result in results] == ["0\n", "1\n", "2\n", "3\n"]


class TestLimits:
    async def test_100_mb_printed_never_stand_in_memory(self, notebook: Notebook) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await notebook.run("print('x' * 100_000_000)\nprint('y' * 100_000_000)\n'kept'")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert result.status == "ok"
        stream, value = result.outputs
        assert TEXT_LIMIT / 2 < len(stream.text) <= TEXT_LIMIT
        assert stream.text.endswith(TEXT_MARKER)
        assert value.text == "'kept'"
        assert grown < 40

    async def test_what_only_a_browser_would_show_is_not_sent(self, notebook: Notebook) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await notebook.run(
            "import comm\nfrom IPython.display import display\n"
            "comm.create_comm(target_name='widget', data={'text': 'x' * 50_000_000})\n"
            "display({'text/plain': 'small'}, raw=True, metadata={'text': 'x' * 50_000_000})"
        )
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert [(output.text, dict(output.metadata)) for output in result.outputs] == [("small", {})]
        assert grown < 40

    async def test_many_small_prints_are_cut_once(self, notebook: Notebook) -> None:
        result = await notebook.run("for _ in range(200_000): print('0123456789')")
        (stream,) = result.outputs
        assert len(stream.text) <= TEXT_LIMIT
        assert stream.text.count(TEXT_MARKER.strip()) == 1

    async def test_the_limit_counts_bytes_and_cuts_between_characters(self, notebook: Notebook) -> None:
        result = await notebook.run("print('数' * 1_000_000)")
        text = result.outputs[0].text
        assert len(text.encode()) <= TEXT_LIMIT
        assert set(text.removesuffix(TEXT_MARKER)) == {"数"}

    async def test_each_cell_has_a_limit_of_its_own(self, notebook: Notebook) -> None:
        await notebook.run("print('x' * 3_000_000)")
        assert await notebook.text("print('again')") == "again\n"

    async def test_a_result_too_long_is_cut(self, notebook: Notebook) -> None:
        result = await notebook.run("'z' * 50_000_000")
        (value,) = result.outputs
        assert TEXT_LIMIT / 2 < len(value.text) <= TEXT_LIMIT + len(TEXT_MARKER)
        assert value.text.endswith(TEXT_MARKER)

    async def test_half_a_table_in_html_is_not_shown(self, notebook: Notebook) -> None:
        result = await notebook.run(
            "class Table:\n"
            "    def _repr_html_(self): return '<td>' * 1_000_000\n"
            "    def __repr__(self): return 'a table'\n"
            "Table()"
        )
        assert dict(result.outputs[0].data) == {"text/plain": "a table" + TEXT_MARKER}

    async def test_a_figure_too_large_is_left_out_with_a_marker(self, notebook: Notebook) -> None:
        result = await notebook.run(
            "from IPython.display import display\n"
            "for size in (1, 9, 3, 3):\n"
            "    display({'image/png': 'A' * size * 1_000_000, 'text/plain': f'picture {size}'}, raw=True)"
        )
        pictures = [(len(output.data.get("image/png", "")), output.text) for output in result.outputs]
        assert pictures == [
            (1_000_000, "picture 1"),
            (0, f"picture 9\n{FIGURE_MARKER}"),
            (3_000_000, "picture 3"),
            (0, f"picture 3\n{FIGURE_MARKER}"),
        ]
        assert sum(size for size, _ in pictures) * 3 // 4 <= FIGURE_LIMIT

    async def test_a_message_of_an_exception_is_cut(self, notebook: Notebook) -> None:
        result = await notebook.run("raise ValueError('long ' * 10_000_000)")
        error = result.outputs[-1]
        assert result.status == "error"
        assert len(str(result.error)) <= 500
        assert len(str(error.evalue)) <= 4000
        assert sum(map(len, error.traceback)) <= TRACEBACK_LIMIT

    async def test_an_exception_is_told_after_the_text_was_cut(self, notebook: Notebook) -> None:
        result = await notebook.run("print('x' * 5_000_000)\n1 / 0")
        assert result.outputs[-1].ename == "ZeroDivisionError"

    async def test_too_much_memory_is_an_exception(self, notebook: Notebook) -> None:
        result = await notebook.run(f"block = bytearray({MEMORY})")
        assert (result.status, result.error) == ("error", "MemoryError")
        assert notebook.kernel.is_alive()


class TestEnvironment:
    async def test_no_secret_reaches_the_notebook(self, notebook: Notebook) -> None:
        text = await notebook.text("import json, os; print(json.dumps(dict(os.environ)))")
        environment = json.loads(text)
        assert "sk-secret" not in text
        assert environment["OMP_NUM_THREADS"] == "1"
        assert environment["LC_TIME"] == "C"
        assert environment["PYTHONHASHSEED"] == "0"
        assert environment["MPLBACKEND"] == "module://matplotlib_inline.backend_inline"
        assert environment["PATH"] == os.environ["PATH"]
        assert "JPY_PARENT_PID" not in environment

    async def test_texts_hash_the_same_in_every_kernel(self, notebook: Notebook) -> None:
        first = await notebook.text("print(hash('detent'))")
        await notebook.kernel.restart()
        assert await notebook.text("print(hash('detent'))") == first

    async def test_cells_run_in_the_work_folder(self, notebook: Notebook) -> None:
        assert await notebook.text("import os; print(os.getcwd())") == f"{notebook.work}\n"


class TestEndings:
    """N-87: timeout, interrupt and death."""

    async def test_a_cell_that_runs_too_long_is_interrupted(self, notebook: Notebook) -> None:
        await notebook.run("kept = 1")
        result = await notebook.run("print('begun')\nwhile True: pass", timeout=0.5)
        assert result.status == "timeout"
        assert str(result.error).startswith("TimeoutError")
        assert result.outputs[0].text == "begun\n"
        assert notebook.kernel.is_alive()
        assert await notebook.text("print(kept)") == "1\n"  # not aborted, and nothing lost

    async def test_a_cell_that_swallows_the_interrupt_has_run_too_long(self, notebook: Notebook) -> None:
        result = await notebook.run(
            "try:\n    while True: pass\nexcept KeyboardInterrupt: print('no')", timeout=0.3
        )
        assert result.status == "timeout"

    async def test_a_cell_that_never_heeds_the_interrupt_ends_the_kernel(self, notebook: Notebook) -> None:
        # A call into C that holds on to the interpreter: no signal handler runs, no other thread either.
        code = (
            "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
            "ctypes.PyDLL(None).sleep(100)"
        )
        result = await notebook.run(code, timeout=0.2)
        assert result.status == "timeout"
        assert not notebook.kernel.is_alive()
        await notebook.kernel.restart()
        assert await notebook.text("print('again')") == "again\n"

    async def test_a_person_interrupts_the_running_cell(self, notebook: Notebook) -> None:
        running = asyncio.create_task(notebook.run("open('begun', 'w').close()\nwhile True: pass"))
        while not (notebook.work / "begun").exists():
            await asyncio.sleep(0.01)
        await notebook.kernel.interrupt()
        result = await running
        assert (result.status, result.error) == ("interrupted", "KeyboardInterrupt")
        assert notebook.kernel.is_alive()

    async def test_an_interrupt_between_cells_harms_nothing(self, notebook: Notebook) -> None:
        await notebook.kernel.interrupt()
        assert await notebook.text("print('fine')") == "fine\n"

    async def test_a_process_that_is_gone_is_noticed(self, notebook: Notebook) -> None:
        # The pause lets the last words out of the process.
        code = "print('last words', flush=True)\nimport os, time; time.sleep(0.3); os._exit(3)"
        result = await notebook.run(code)
        assert result.status == "died"
        assert str(result.error).startswith("KernelDied")
        assert result.outputs[0].text == "last words\n"
        assert not notebook.kernel.is_alive()
        assert (await notebook.run("1")).status == "died"

    async def test_a_crash_in_c_is_a_death(self, notebook: Notebook) -> None:
        assert (await notebook.run("import ctypes; ctypes.string_at(0)")).status == "died"

    async def test_a_process_that_answers_no_heartbeat_is_dead(self, notebook: Notebook) -> None:
        pid = int(await notebook.text("import os; print(os.getpid())"))
        running = asyncio.create_task(notebook.run("open('stopped', 'w').close()\nwhile True: pass"))
        while not (notebook.work / "stopped").exists():
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGSTOP)
        assert (await running).status == "died"
        assert not notebook.kernel.is_alive()

    async def test_a_shutdown_ends_the_cell_that_is_running(self, notebook: Notebook) -> None:
        running = asyncio.create_task(notebook.run("open('long', 'w').close()\nwhile True: pass"))
        while not (notebook.work / "long").exists():
            await asyncio.sleep(0.01)
        await notebook.kernel.shutdown()
        assert (await running).status == "died"
        assert notebook.kernel.connection is None

    async def test_a_cancelled_task_leaves_a_kernel_that_works(self, notebook: Notebook) -> None:
        running = asyncio.create_task(notebook.run("open('cancel', 'w').close()\nwhile True: pass"))
        while not (notebook.work / "cancel").exists():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await notebook.text("print('works')") == "works\n"
