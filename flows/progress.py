"""Progress of many guests at once: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from flows.terminal import STATE_COLOURS
from tasks.stage import Event

# In the place of a stage: the run itself has begun, and the detail says where it is recorded.
BEGUN = "run"

Listener = Callable[[Event], None]

# Seconds after which a stage that says nothing is mentioned again where no live table can be.
_REMIND = 20.0
# Seconds between two looks of the live table.
_REFRESH = 0.125
_UNDER_WAY = frozenset({"started", "waiting", "working"})

_listener: ContextVar[Listener | None] = ContextVar("proxflow_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Show the progress of the flows that run inside to this listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def notify(event: Event) -> None:
    """Give an event to whoever listens; a flow that nobody watches has its Prefect logs."""
    listener = _listener.get()
    if listener is not None:
        listener(event)


def listener() -> Listener:
    """The listener of now, to be called from other threads."""
    found = _listener.get()
    return found if found is not None else lambda _event: None


class Board:
    """Shows events. A context manager: what is live on the terminal stops with it."""

    def __init__(self, console: Console) -> None:
        """On a terminal the board is redrawn in place; elsewhere it prints a line an ending."""
        self._console = console
        self._began = time.monotonic()
        self._running: dict[str, tuple[str, str, float]] = {}
        # Held over every change and everything shown: rich moves the cursor by the height that the
        # table had when a line was rendered, so two threads that print at once erase lines.
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Board:
        """Begin to show."""
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=self._console,
                auto_refresh=False,
                transient=True,
            )
            self._live.start()
            self._thread = threading.Thread(target=self._redraw, args=(self._live,), daemon=True)
        else:
            self._thread = threading.Thread(target=self._remind, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop to show."""
        self._closed.set()
        with self._lock:
            # The last refresh shows an empty table: rich cannot take back rows beyond the screen.
            self._running.clear()
            if self._live is not None:
                self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take an event, from any thread."""
        with self._lock:
            if event.stage == BEGUN:
                self._console.print(f"[dim]{escape(event.detail)}[/]", soft_wrap=True)
                return
            if event.state in _UNDER_WAY:
                stage, _, since = self._running.get(event.node, ("", "", 0.0))
                if event.state == "started" or stage != event.stage:
                    since = time.monotonic()
                self._running[event.node] = (event.stage, event.detail, since)
            else:
                self._running.pop(event.node, None)
            # Progress is in the live table, where there is one.
            if event.state != "started" and not (event.state == "working" and self._live):
                self._print(event)

    def _print(self, event: Event) -> None:
        colour = STATE_COLOURS.get(event.state, "")
        seconds = f"{event.seconds:5.1f} s" if event.seconds >= 0.05 else "       "
        self._console.print(
            f"[dim]{self._clock()}[/] {escape(event.node):<12} {event.stage:<9} "
            f"[{colour}]{event.state:<9}[/] [dim]{seconds}[/] {escape(event.detail)}",
            soft_wrap=True,
        )
        for text in event.warnings:
            self._console.print(
                f"          {'':<12} [yellow]warning:[/] {escape(text)}", soft_wrap=True
            )

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes:3d}:{seconds:02d}"

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=False)
        now = time.monotonic()
        for node, (stage, detail, since) in sorted(self._running.items()):
            table.add_row(
                Spinner("dots"), node, stage, f"[dim]{now - since:.0f} s[/]", escape(detail)
            )
        return table

    def _redraw(self, live: Live) -> None:
        while not self._closed.wait(_REFRESH):
            with self._lock, suppress(OSError):
                if not self._closed.is_set():
                    live.refresh()

    def _remind(self) -> None:
        while not self._closed.wait(_REMIND):
            now = time.monotonic()
            with self._lock:
                for node, (stage, _, since) in sorted(self._running.items()):
                    if now - since >= _REMIND:
                        self._console.print(
                            f"[dim]{self._clock()}[/] {escape(node):<12} {stage:<9} "
                            f"[cyan]running[/]   [dim]{now - since:5.1f} s[/]",
                            soft_wrap=True,
                        )
