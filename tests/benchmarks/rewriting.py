"""Rewrite an ISO in a process of its own and print seconds and peak memory (KiB) as JSON."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from pathlib import Path

from tasks.iso.remaster import remaster


def main() -> None:
    """``python -m tests.benchmarks.rewriting SOURCE TARGET [checksum]``."""
    source, target = map(Path, sys.argv[1:3])
    digest = hashlib.sha256() if "checksum" in sys.argv[3:] else None
    began = time.perf_counter()
    remaster(source, target, "subiquity", digest=digest)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "rss": peak}))


if __name__ == "__main__":
    main()
