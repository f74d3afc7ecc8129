"""Several runs that need the same image, and runs that die meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blocks.manifest.guest import ImageSource
from blocks.units import MIB
from tasks.image import image
from tests.environments import NODES, OTHER_RUN, RUN, Place
from tests.tasks.image.files import qcow2, sha256
from tests.tasks.image.orders import building, images, provided, source, stored, uploads
from tests.webserver import Web

_SENDING = """
import sys
from pathlib import Path
from blocks.manifest.guest import Digest, ImageSource
from blocks.proxmox.client import Client
from blocks.proxmox.connection import lab_connection
from tasks.image.provide import Job
from tasks.progress import Meter

class Loud(Meter):
    def __call__(self, job, done, total):
        print(job.partition(" ")[0], flush=True)

state, name, origin, digest = sys.argv[1:]
source = ImageSource(name=name, origin=origin, storage="local")
client = Client(lab_connection(Path(state)))
Job(client, "pve1", source, Digest(algorithm="sha256", hex=digest), Loud()).provide()
"""


def both_at_once(place: Place, wanted: ImageSource) -> list[str]:
    """How the stage ended in two runs that began together."""

    def one(run_id: str) -> str:
        with building(place, wanted, run_id) as (here, template):
            return image.fn(here.run, template.label).status

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(one, (RUN, OTHER_RUN)))


@pytest.mark.parametrize("fetch", ["auto", "here"])
def test_of_two_runs_at_once_one_provides_the_image_and_the_other_finds_it(
    place: Place, web: Web, fetch: str
) -> None:
    data = qcow2(place.number, length=4 * MIB)
    wanted = source(place, web.put("a.qcow2", data), checksum=sha256(data), fetch=fetch)
    place.lab.forget_requests()

    ended = both_at_once(place, wanted)

    assert ended == ["done", "unchanged"]
    assert len(web.fetches("a.qcow2")) == 1
    assert len(uploads(place)) == (1 if fetch == "here" else 0)


def test_a_run_that_is_killed_while_it_sends_leaves_nothing_that_is_half_used(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "golden.qcow2"
    path.write_bytes(qcow2(place.number, length=8 * MIB))
    wanted = source(place, path)
    digest = sha256(path.read_bytes()).hex
    place.lab.fault(method="POST", path=".*/upload", rate=MIB)
    command = [sys.executable, "-c", _SENDING, str(place.lab.state), wanted.name, str(path), digest]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "uploading\n" in run.stdout
        run.send_signal(signal.SIGKILL)
    between = images(place)
    outcome, volid = provided(place, wanted)

    assert run.returncode == -signal.SIGKILL
    assert between == []
    assert outcome.status == "done"
    assert stored(place, volid, NODES[0]).read_bytes() == path.read_bytes()
    assert len(images(place)) == 1
