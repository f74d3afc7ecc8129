"""Stage sweep: the seed ISOs and snippets of a guest that is gone."""

from __future__ import annotations

from blocks.proxmox.inventory import Inventory, read_inventory
from blocks.words import count
from tasks.cloudinit.snippets import FoundSnippet, all_snippets, delete_snippet
from tasks.destroy import delete_seed
from tasks.found import all_seeds
from tasks.session import Session, session
from tasks.stage import Outcome, RunRef, stage


@stage("sweep", retries=3)
def sweep(run: RunRef, node: str) -> Outcome:
    """Delete every seed ISO and snippet of the guest, whichever run made it, on every storage."""
    here = session(run)
    inventory = read_inventory(here.client)
    seeds = [
        seed
        for seed in all_seeds(here.client, inventory, here.environment.name)
        if seed.name.guest == node
    ]
    for seed in seeds:
        delete_seed(here.client, seed)
    snippets = [snippet for snippet in _snippets(here, inventory) if snippet.name.guest == node]
    for snippet in snippets:
        delete_snippet(here.client, snippet)
    found = [(len(seeds), "seed ISO"), (len(snippets), "snippet")]
    said = " and ".join(count(number, noun) for number, noun in found if number)
    if not said:
        return Outcome(status="unchanged", detail="no seed ISO left")
    return Outcome(status="done", detail=f"{said} deleted")


def _snippets(here: Session, inventory: Inventory) -> tuple[FoundSnippet, ...]:
    """Only templates and their clones have any: looking for them costs a call a storage."""
    everyone = here.everyone or here.environment
    if everyone.recipe is None:
        return ()
    return all_snippets(here.client, inventory, everyone.name)
