"""What a stage itself finds wrong with the cluster."""

from blocks.proxmox.errors import ProxmoxError


class StageError(ProxmoxError):
    """The cluster answered, but is not in a state that the stage can work with."""
