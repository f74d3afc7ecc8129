"""The temporary Prefect server's process: it ends when the run that started it ends.

The run holds the other end of standard input. The kernel closes it however the run dies, so that
neither SIGTERM nor SIGKILL leaves a server behind.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from typing import Final

_STOP_BOUND: Final = 5.0


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    # A server that hangs in its shutdown must not outlive the run either.
    threading.Timer(_STOP_BOUND, os._exit, args=(1,)).start()


def main(listening: int, lock: str) -> None:
    """Serve Prefect's API on an inherited socket, given by its file descriptor.

    ``lock`` is held while the server starts: two that make a new database at the same time, or
    bring an old one up to date, fail.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Nothing of what the imports make is garbage: collecting took a tenth of the start.
    gc.disable()
    import uvicorn
    from filelock import FileLock

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            with FileLock(lock):
                await super().startup(sockets)
            gc.freeze()
            gc.enable()

    config = uvicorn.Config(
        "prefect.server.api.server:create_app",
        factory=True,
        log_level="error",
        lifespan="on",
        timeout_graceful_shutdown=2,
    )
    with socket.socket(fileno=listening) as listener:
        Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
