"""Which stages of a template and its clones, in which order and lane."""

from __future__ import annotations

from collections.abc import Collection

from blocks.manifest.guest import Guest
from blocks.manifest.recipe import TEMPLATE
from flows.jobs import stage_call, upload_lane
from tasks.fleet import NodeJob, StageCall
from tasks.image import image
from tasks.stage import RunRef, Stage
from tasks.template.clone import adjust, clone, start
from tasks.template.configure import configure
from tasks.template.convert import convert
from tasks.template.create import create
from tasks.template.seen import BUILDING, TemplateSurvey

_STAGES: dict[str, Stage[[]]] = {
    "image": image,
    "create": create,
    "configure": configure,
    "template": convert,
}


def template_jobs(
    run: RunRef, seen: TemplateSurvey, pending: Collection[str], cluster: str, *, reconcile: bool
) -> tuple[NodeJob, ...]:
    """One job for the template, and one for each clone that has something to do.

    ``pending``: the stages to run. Clones wait for the template where this run makes it.
    """
    jobs = []
    building = tuple(name for name in BUILDING if name in pending)
    if building:
        calls = tuple(_template_call(name, seen, cluster) for name in building)
        jobs.append(NodeJob(node=TEMPLATE, run=run, stages=calls))
    if "clones" in pending:
        after = ((TEMPLATE, building[-1]),) if building else ()
        jobs += [
            NodeJob(node=guest.label, run=run, stages=_clone_calls(guest, seen, cluster, after))
            for guest in seen.clones
            if seen.to_do(guest, reconcile)
        ]
    return tuple(jobs)


def _template_call(name: str, seen: TemplateSurvey, cluster: str) -> StageCall:
    guest = seen.template
    stage = _STAGES[name]
    if name == "image" and guest.image is not None:
        lane = upload_lane(guest, guest.image.storage, seen.inventory, cluster)
        return stage_call(stage, lane=lane)
    if name == "configure":
        return stage_call(stage, lane=upload_lane(guest, _seeds(guest), seen.inventory, cluster))
    return stage_call(stage)


def _clone_calls(
    guest: Guest, seen: TemplateSurvey, cluster: str, after: tuple[tuple[str, str], ...]
) -> tuple[StageCall, ...]:
    return (
        stage_call(clone, after=after),
        stage_call(adjust, lane=upload_lane(guest, _seeds(guest), seen.inventory, cluster)),
        stage_call(start),
    )


def _seeds(guest: Guest) -> str | None:
    """The storage that takes the guest's seed ISO, where it gets one."""
    told = guest.cloud_init
    return told.storage if told is not None and told.method == "seed" else None
