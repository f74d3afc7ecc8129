"""Rewrite an ISO in a process of its own and print seconds and peak memory (KiB) as JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from tasks.iso.remaster import remaster


def main() -> None:
    """``python -m tests.benchmarks.rewriting SOURCE TARGET``."""
    source, target = map(Path, sys.argv[1:])
    began = time.perf_counter()
    remaster(source, target, "subiquity")
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "rss": peak}))


if __name__ == "__main__":
    main()
