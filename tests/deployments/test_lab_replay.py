"""The recorded transcripts are the lab's specification."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from deployments.lab.replay import replay_file

HERE = Path(__file__).parent
FILES = sorted((HERE / "pve_facts").glob("*.jsonl"))
KNOWN = YAML(typ="safe").load((HERE / "replay_known.yaml").read_text())


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_lab_answers_as_recorded_except_for_the_steps_known_to_differ(file: Path) -> None:
    known = KNOWN.get(file.stem, {})
    if known.get("all"):
        pytest.skip(known["all"])

    found = replay_file(file)

    differing = {difference.step for difference in found}
    texts = [f"{d.step} {d.why}: {d.text}" for d in found if d.step not in known.get("steps", {})]
    assert not texts, "\n".join(texts)
    assert differing == set(known.get("steps", {})), "steps that are equal now must leave the list"
