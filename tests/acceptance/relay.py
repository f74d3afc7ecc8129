"""Standard input and output, joined to a port on loopback: QEMU starts one for each connection."""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    """``python relay.py PORT``."""
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:

        def upwards() -> None:
            while data := os.read(0, 65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

        threading.Thread(target=upwards, daemon=True).start()
        while data := server.recv(65536):
            while data:
                data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
