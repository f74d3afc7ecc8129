"""Whole builds of a template by plain calls of its stages, as the flow makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from blocks.manifest.mark import read_mark
from blocks.manifest.recipe import TEMPLATE
from blocks.proxmox.errors import ProxmoxError
from tasks.image import image
from tasks.rollback import Undone, undo_run
from tasks.session import Session
from tasks.stage import Outcome, RunRef
from tasks.template.clone import adjust, clean_up, clone, start
from tasks.template.configure import configure
from tasks.template.convert import convert
from tasks.template.create import create
from tasks.template.seen import TemplateSurvey, survey_template
from tasks.template.stages import publish
from tests.environments import opened
from tests.templates import Golden

TODAY = date(2026, 3, 4)
TRIES = 4
BUILDING = (image, create, configure, convert)
CLONING = (clone, adjust, start)


@dataclass
class Ended:
    """How a build went: errors by label and stage, warnings, what a rollback did."""

    errors: dict[tuple[str, str], ProxmoxError] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    undone: Undone | None = None

    @property
    def ok(self) -> bool:
        return not self.errors


def rebuilt(golden: Golden, image_file: Path, clones: int = 2, **rebuild: Any) -> dict[str, Any]:
    """Generations with a tag, one is kept; of the clones the second is told by a seed."""
    first = golden.vmid + 10
    document = golden.document(
        image_file,
        clones,
        vm_id=first,
        rebuild={"when": "on-new-image", "keep": 1, "vm_ids": f"{first}-{first + 4}", **rebuild},
        alias={"tag": f"{golden.name}-current"},
    )
    if clones > 1:
        document["spec"]["clones"][1]["cloud_init"] = {"method": "seed", "storage": "local"}
    return document


def build(
    golden: Golden,
    document: dict[str, Any],
    run_id: str,
    *,
    today: date = TODAY,
    rollback: bool = True,
    between: Callable[[Session, str, str], None] = lambda here, label, stage: None,
) -> Ended:
    """One run; ``between`` is called before each stage with session, label and stage."""
    ended = Ended()
    with opened(golden.write(document), run_id) as here:
        seen = surveyed(here, today)
        works = _all(here, ended, TEMPLATE, BUILDING, between) if _pending(seen) else True
        if works:
            for guest in seen.clones:
                if not seen.to_do(guest, reconcile=False):
                    continue
                if not _all(here, ended, guest.label, CLONING, between) and rollback:
                    failure = next(e for (who, _), e in ended.errors.items() if who == guest.label)
                    ended.warnings.append(clean_up(here, guest.label, failure))
            _all(here, ended, TEMPLATE, (publish,), between)
        if ended.errors and rollback:
            ended.undone = undo(here, keep_ready=True)
    return ended


def surveyed(here: Session, today: date = TODAY) -> TemplateSurvey:
    """Look, as the flow does; the session is about that generation from now on."""
    seen = survey_template(here, today)
    here.environment = here.everyone = seen.environment
    for guest in seen.environment.guests:
        here.remember(guest, seen.lives.get(guest.label))
    return seen


def undo(here: Session, run_id: str | None = None, *, keep_ready: bool = False) -> Undone:
    """What the flow's hook does: of a run that failed (``keep_ready``), or that was broken off."""
    return undo_run(
        here.client,
        here.environment.name,
        run_id or here.run.run_id,
        declared=here.environment.possible_guests(),
        keep_ready=keep_ready,
    )


def _pending(seen: TemplateSurvey) -> bool:
    return seen.standing(seen.template) != "ready"


def _all(
    here: Session,
    ended: Ended,
    label: str,
    stages: tuple[Any, ...],
    between: Callable[[Session, str, str], None],
) -> bool:
    for stage in stages:
        try:
            between(here, label, stage.name)
            ended.warnings += tried(stage.fn, here.run, label).warnings
        except ProxmoxError as error:
            ended.errors[label, stage.name] = error
            return False
    return True


def tried(fn: Callable[[RunRef, str], Outcome], run: RunRef, label: str) -> Outcome:
    """A stage with its retries, without the pauses between them."""
    for _ in range(TRIES - 1):
        try:
            return fn(run, label)
        except ProxmoxError as error:
            if not error.transient:
                raise
    return fn(run, label)


def generations(golden: Golden) -> dict[int, dict[str, Any]]:
    """Configurations of the guests with numbers of generations, by number."""
    return _configs(golden, range(golden.vmid + 10, golden.vmid + 15))


def clones(golden: Golden) -> dict[int, dict[str, Any]]:
    """Configurations of the guests with numbers of clones, by number."""
    return _configs(golden, range(golden.vmid + 1, golden.vmid + 10))


def finished(golden: Golden) -> list[int]:
    """Numbers of what carries a mark that says so."""
    found = {**generations(golden), **clones(golden)}
    marks = {vmid: read_mark(str(each.get("description", ""))) for vmid, each in found.items()}
    return sorted(vmid for vmid, mark in marks.items() if mark is not None and mark.ready)


def volumes(golden: Golden) -> list[str]:
    """Disks of the place's guests and seeds of its environment; no cached images."""
    wanted = [f"-{golden.vmid + n}-" for n in range(20)] + [f"proxflow_{golden.name}_"]
    names = golden.place.lab.snapshot()["volumes"]
    return sorted(name for name in names if any(part in name for part in wanted))


def _configs(golden: Golden, numbers: range) -> dict[int, dict[str, Any]]:
    with golden.place.client() as client:
        rows = client.get("/cluster/resources", type="vm")
        return {
            row["vmid"]: dict(client.get(f"/nodes/{row['node']}/qemu/{row['vmid']}/config"))
            for row in sorted(rows, key=lambda row: int(row["vmid"]))
            if row["vmid"] in numbers
        }
