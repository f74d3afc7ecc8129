"""Stage sweep: the seed ISOs of a guest that is gone."""

from __future__ import annotations

from blocks.proxmox.inventory import read_inventory
from blocks.words import count
from tasks.destroy import delete_seed
from tasks.found import all_seeds
from tasks.session import session
from tasks.stage import Outcome, RunRef, stage


@stage("sweep", retries=3)
def sweep(run: RunRef, node: str) -> Outcome:
    """Delete every seed ISO of the guest, whichever run uploaded it and on whichever storage."""
    here = session(run)
    inventory = read_inventory(here.client)
    seeds = [
        seed
        for seed in all_seeds(here.client, inventory, here.environment.name)
        if seed.name.guest == node
    ]
    for seed in seeds:
        delete_seed(here.client, seed)
    if not seeds:
        return Outcome(status="unchanged", detail="no seed ISO left")
    return Outcome(status="done", detail=f"{count(len(seeds), 'seed ISO')} deleted")
