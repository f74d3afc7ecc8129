"""Send a file to the lab as a process of its own, and print seconds and peak memory.

``python -m tests.benchmarks.sending STATE FILE``
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from blocks.proxmox.upload import upload


def main(state: Path, file: Path) -> None:
    """``rss`` in KiB, as the kernel counts it."""
    with Client(lab_connection(state)) as client:
        client.version()
        began = time.perf_counter()
        upload(client, "pve1", "local", file)
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "rss": peak}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
