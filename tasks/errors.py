"""What a stage itself finds wrong with the cluster."""

from collections.abc import Iterator
from contextlib import contextmanager

from blocks.paths import state_dir
from blocks.proxmox.errors import ProxmoxError


class StageError(ProxmoxError):
    """The cluster answered, but is not in a state that the stage can work with."""


@contextmanager
def keeping_state() -> Iterator[None]:
    """Around writes to the state folder: raises StageError where it cannot be written."""
    try:
        yield
    except OSError as error:
        raise StageError(
            f"cannot write to the state folder {state_dir()}: {error.strerror or error}",
            advice="make room or give the right to write there, or name another folder in "
            "PROXFLOW_STATE_DIR; then run the same again",
        ) from None
