"""The line in which a person writes prompts and answers: editing, history, completion, pastes as one text.

The editing is readline's, as in every shell. Where readline knows no bracketed paste, as on macOS, lines
that arrive together are taken together.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from detent.cli.output import is_terminal, printable, width
from detent.cli.signals import graceful
from detent.insight.formatting import count

if TYPE_CHECKING:
    from detent.flows.coding.terminal.prompt_history import PromptHistory

Complete = Callable[[str, str], list[str]]
"""Completions of a word, given what stands before it on the line."""

TOGETHER = 0.05
"""Seconds within which further lines belong to the same paste."""
DELIMITERS = " \t\n"
LOOKS_EVERY = 0.5
"""Seconds between two looks for news while nothing is typed."""
PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"
NOTICED_WITHIN = 0.1
"""Seconds after which a signal that readline has not noticed is followed by another."""


def is_interactive() -> bool:
    """Whether a person at a terminal can be asked: it is ours to read from, and shows what we print."""
    if not _is_terminal():
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()  # a job in the background may not read
    except (AttributeError, OSError):
        return True


class PromptLine:
    """Reads lines from the terminal; to be used in the main thread, while no event needs the loop."""

    def __init__(self, history: PromptHistory | None = None, complete: Complete | None = None) -> None:
        self._history = history
        self._complete = complete
        self._matches: list[str] = []
        self._readline = _readline()
        self._pastes = self._prepare()
        """Whether pastes arrive as one text by themselves."""
        self.given_up = ""
        """What stood in the line when Ctrl-C was pressed in it last."""
        self._as_it_was: list[Any] | None = None
        """The terminal's mode, while keys wait in it for readline."""

    def _prepare(self) -> bool:
        line = self._readline
        if line is None:
            return False
        line.set_auto_history(False)
        line.set_completer_delims(DELIMITERS)
        line.set_completer(self._completion)
        for text in self._history.read() if self._history is not None else ():
            line.add_history(text)
        if "libedit" in (line.__doc__ or ""):
            line.parse_and_bind("bind ^I rl_complete")
            return False
        for setting in (
            "tab: complete", "set enable-bracketed-paste on", "set enable-active-region off",
            "set show-all-if-ambiguous on", '"\\e\\C-m": "\\C-v\\C-j"',
        ):  # fmt: skip
            line.parse_and_bind(setting)
        return True

    async def until_key(self, prompt: str, news: Callable[[], Awaitable[bool]]) -> bool:
        """Show the prompt until a key is pressed, which `read` then gets; False as soon as there is `news`.

        Raises:
            KeyboardInterrupt: the person has pressed Ctrl-C.
        """
        self.given_up = ""
        if self._readline is None or not self._hold_keys(echo=False):
            return True
        number = sys.stdin.fileno()
        if select.select([number], [], [], 0)[0]:
            return True
        loop, pressed = asyncio.get_running_loop(), asyncio.Event()
        with graceful(self._give_back) as stop:
            _write(printable(prompt) + (PASTES_ON if self._pastes else ""))
            loop.add_reader(number, pressed.set)
            waiting = [asyncio.ensure_future(event.wait()) for event in (pressed, stop.asked)]
            try:
                while not any(task.done() for task in waiting) and not await news():
                    await asyncio.wait(waiting, timeout=LOOKS_EVERY, return_when=asyncio.FIRST_COMPLETED)
            except BaseException:
                self._give_back()
                raise
            finally:
                loop.remove_reader(number)
                for task in waiting:
                    task.cancel()
        if pressed.is_set() and stop.signal is None:
            _write("\b" * width(prompt))  # readline writes it again
            return True
        self._give_back()
        if stop.signal == signal.SIGINT:
            raise KeyboardInterrupt
        if stop.signal is not None:
            raise SystemExit(128 + stop.signal)
        _write("\r\x1b[K" + (PASTES_OFF if self._pastes else ""))
        return False

    def _hold_keys(self, *, echo: bool) -> bool:
        """Have keys wait in the terminal, each at once; False if that cannot be.

        Readline shows what it reads only where it finds `echo`.
        """
        try:
            import termios

            number = sys.stdin.fileno()
            mode = termios.tcgetattr(number)
            if self._as_it_was is None:
                self._as_it_was = [*mode[:6], [*mode[6]]]
            mode[0] &= ~termios.ICRNL
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            mode[3] |= termios.ECHO if echo else 0
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(number, termios.TCSADRAIN, mode)
        except Exception:  # no terminal, or none of this kind
            self._as_it_was = None
            return False
        return True

    def _give_back(self) -> str:
        """Give the terminal its mode back."""
        before, self._as_it_was = self._as_it_was, None
        if before is not None:
            with contextlib.suppress(Exception):
                import termios

                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
        return ""

    def read(
        self,
        prompt: str,
        *,
        begun: str = "",
        completes: bool = True,
        interrupted: Callable[[], bool] = bool,
    ) -> str:
        """A line, or several that were pasted together; `begun` is what the person has typed already.

        `interrupted` says whether Ctrl-C was pressed just before.

        Raises:
            EOFError: the person has closed the input.
            KeyboardInterrupt: the person has pressed Ctrl-C.
        """
        line = self._readline
        if line is not None:
            line.set_startup_hook((lambda: line.insert_text(begun)) if begun else None)
            line.set_completer(self._completion if completes else None)
        sys.stdout.flush()
        try:
            with interruptible():
                if interrupted():
                    raise KeyboardInterrupt
                self.given_up = ""
                with contextlib.nullcontext() if line is None else _heard_at_once():
                    if self._as_it_was is not None:  # not before: the terminal itself would show what comes
                        self._hold_keys(echo=True)
                    text = input(_marked(prompt) if line is not None else printable(prompt))
                text = text if self._pastes else "\n".join([text, *_pasted_lines()])
        except UnicodeDecodeError:
            return ""
        except KeyboardInterrupt:
            self.given_up = line.get_line_buffer() if line is not None else ""
            raise
        finally:
            self._give_back()
            if line is not None:
                line.set_startup_hook(None)
        text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if line is not None and is_terminal() and lines > shutil.get_terminal_size().lines:
            # Readline writes lines that have no room over each other in the last row.
            _write(f"\x1b[1A\r\x1b[2K[{count(lines, 'line')}]\n")
        return text

    def remember(self, text: str) -> None:
        """Offer a prompt again, here and in later conversations."""
        if not text.strip():
            return
        line = self._readline
        if line is not None:
            last = line.get_current_history_length()
            if not last or line.get_history_item(last) != text:
                line.add_history(text)
        if self._history is not None:
            self._history.add(text)

    def _completion(self, word: str, number: int) -> str | None:
        if number == 0:
            self._matches = []
            if self._complete is not None and self._readline is not None:
                before = self._readline.get_line_buffer()[: self._readline.get_begidx()]
                with contextlib.suppress(Exception):  # a completion that fails must not end a conversation
                    self._matches = self._complete(word, before)
        return self._matches[number] if number < len(self._matches) else None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def discard_typed() -> None:
    """Forget what was typed before a question was there to be read."""
    with contextlib.suppress(Exception):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _is_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stdout.isatty()
    except (AttributeError, ValueError):  # closed, or never there
        return False


def _readline() -> Any:
    """The module `readline`, where there is one and it is of use."""
    if not _is_terminal():
        return None
    try:
        import readline
    except ImportError:
        return None
    return readline


def _marked(prompt: str) -> str:
    """A prompt whose colours readline does not count as columns."""
    parts = printable(prompt).split("\x1b")
    marked = [parts[0]]
    for part in parts[1:]:
        sequence, letter, rest = part.partition("m")
        marked.append(f"\x01\x1b{sequence}{letter}\x02{rest}")
    return "".join(marked)


def _pasted_lines() -> Iterator[str]:
    """Lines that have arrived together with the one just read."""
    try:
        number = sys.stdin.fileno()
        while select.select([number], [], [], TOGETHER)[0]:
            raw = os.read(number, 65536)
            if not raw:
                return
            yield from raw.decode("utf-8", "replace").removesuffix("\n").split("\n")
    except (OSError, ValueError):
        return


@contextlib.contextmanager
def _heard_at_once() -> Iterator[None]:
    """Have readline notice a signal that comes in the instant before it waits.

    It looks for signals only when its waiting is interrupted, so that it would notice this one with the next
    key. Another signal, which changes nothing, interrupts it.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    over = threading.Event()
    waiting = threading.get_ident()

    def watch() -> None:
        while os.read(reader, 1) and not over.is_set():
            while not over.wait(NOTICED_WITHIN):
                signal.pthread_kill(waiting, signal.SIGWINCH)

    watcher = threading.Thread(target=watch, daemon=True)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C end the reading of a line, and SIGTERM the program, with the terminal as it was."""

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: end}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
