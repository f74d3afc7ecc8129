"""What a run's names stand for in this process: its environment, its connection, its seeds.

A Prefect parameter holds names only (a manifest's path, a context, a run id). Each process opens
what they stand for once and shares it between the run's stages; a hook in another process opens it
anew from the same names.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from blocks.manifest.environment import Environment
from blocks.manifest.guest import Guest
from blocks.manifest.mark import Mark
from blocks.proxmox.client import Client
from blocks.proxmox.connection import Connection, resolve
from blocks.proxmox.errors import AlreadyExists, NotFound
from tasks.atwork import at_work
from tasks.iso.render import Rendered, render
from tasks.live import Live, read_live
from tasks.masking import open_environment
from tasks.runfolder import RunFolder, make_run_folder
from tasks.stage import RunRef


@dataclass
class Session:
    """One run's open environment and connection. Safe to share between threads.

    ``environment`` has the guests that the run is about, ``everyone`` all that are declared.
    ``media``: the ISO that each guest, by label, is installed from. ``provided``: node and volume
    id of the ISOs that this run has made sure of. ``held``: numbers of unfinished templates that
    carry, or carried, the mark of this run.
    """

    run: RunRef
    environment: Environment
    connection: Connection
    client: Client
    everyone: Environment | None = None
    media: dict[str, str] = field(default_factory=dict)
    provided: set[tuple[str, str]] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    _folder: RunFolder | None = None
    _live: dict[str, Live | None] = field(default_factory=dict)
    _rendered: dict[str, Rendered] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _working: ExitStack = field(default_factory=ExitStack)

    @property
    def skip_build(self) -> bool:
        """Whether the seed ISOs are on their storages already."""
        return bool(self.run.options.get("skip_kickstart_build"))

    @property
    def skip_finalize(self) -> bool:
        """Whether the install media stay in the drives."""
        return bool(self.run.options.get("skip_finalize"))

    @property
    def boot_timeout(self) -> float | None:
        """Seconds that an installation may take until its SSH server answers, if the run says."""
        asked = self.run.options.get("boot_timeout")
        return None if asked is None else float(asked)

    def guest(self, label: str) -> Guest:
        """The declared guest of that label. Raises UnknownGuest."""
        return self.environment.guest(label)

    def declared(self, vmid: int) -> Guest:
        """The guest of that number, among all that the manifest declares. Raises KeyError."""
        for guest in (self.everyone or self.environment).guests:
            if guest.vmid == vmid:
                return guest
        raise KeyError(vmid)

    def mark(self, guest: Guest, *, ready: bool = False) -> Mark:
        """The mark of this run on a guest."""
        return Mark(
            env=self.environment.name,
            guest=guest.label,
            vmid=guest.vmid,
            run=self.run.run_id,
            ready=ready,
        )

    def owns(self, guest: Guest, mark: Mark | None) -> bool:
        """Whether a live guest with this mark is the declared one, whichever run made it."""
        declared = (self.environment.name, guest.label, guest.vmid)
        return mark is not None and (mark.env, mark.guest, mark.vmid) == declared

    def made(self, mark: Mark | None) -> bool:
        """Whether a live guest with this mark was created by this run."""
        return mark is not None and (mark.env, mark.run) == (
            self.environment.name,
            self.run.run_id,
        )

    def rendered(self, guest: Guest) -> Rendered:
        """The guest's installer files, rendered once a run. Raises RenderError."""
        with self._lock:
            if guest.label not in self._rendered:
                self._rendered[guest.label] = render(guest, env=self.environment.name)
            return self._rendered[guest.label]

    def live(self, guest: Guest) -> Live | None:
        """The guest as it was last read in this run; read now if it never was."""
        if guest.label not in self._live:
            self._live[guest.label] = read_live(self.client, guest)
        return self._live[guest.label]

    def look(self, guest: Guest) -> Live | None:
        """The guest as it is now. One call."""
        self._live.pop(guest.label, None)
        return self.live(guest)

    def remember(self, guest: Guest, live: Live | None) -> None:
        """Keep what a bulk read has just found."""
        self._live[guest.label] = live

    def require(self, guest: Guest) -> Live:
        """The guest as it is now, which must exist and be ours. One call.

        Raises NotFound where it is missing, AlreadyExists where somebody else's is in its place.
        """
        live = self.look(guest)
        if live is None:
            raise NotFound(
                f"VM {guest.vmid} is not on node {guest.node}",
                advice="it was removed while the run was working; run the same again",
            )
        self.require_ours(guest, live)
        return live

    def require_ours(self, guest: Guest, live: Live) -> None:
        """Refuse to touch a guest that this environment did not make. Raises AlreadyExists."""
        if self.owns(guest, live.mark):
            return
        whose = (
            f"belongs to {live.mark.guest} of environment {live.mark.env}"
            if live.mark
            else "was not made by Proxflow"
        )
        raise AlreadyExists(
            f"VM {guest.vmid} ({live.config.get('name', 'unnamed')}) on {guest.node} {whose}",
            advice=f"give {guest.label} another vm_id, or remove that guest yourself",
        )

    def folder(self) -> Path:
        """A folder of this run that nobody else can read; it goes with the session.

        Raises StageError where it cannot be made.
        """
        with self._lock:
            if self._folder is None:
                self._folder = make_run_folder()
            return self._folder.path

    def work(self) -> None:
        """Let other runs of the template know that this one is at work, until it is closed."""
        if self.environment.recipe is not None:
            self._working.enter_context(at_work(self.environment.name, self.run.run_id))

    def close(self) -> None:
        """Close the connection and remove the built seeds."""
        self._working.close()
        self.client.close()
        if self._folder is not None:
            self._folder.remove()


_open: dict[str, Session] = {}
_opening = threading.Lock()


def session(run: RunRef) -> Session:
    """The open session of a run; opens it when this process has not yet.

    Raises ManifestError, ConnectionFault or ProxmoxError.
    """
    with _opening:
        if run.run_id not in _open:
            environment = open_environment(run.manifest)
            connection = resolve(run.cluster, context=environment.context)
            _open[run.run_id] = Session(run, environment, connection, Client(connection))
        return _open[run.run_id]


def adopt(opened: Session) -> None:
    """Make an open session that of its run, which is at work from now on."""
    opened.work()
    with _opening:
        _open[opened.run.run_id] = opened


def close_session(run: RunRef) -> None:
    """Close a run's session if it is open."""
    with _opening:
        found = _open.pop(run.run_id, None)
    if found is not None:
        found.close()
