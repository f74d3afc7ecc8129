"""A lab with a token that may make guests, and sees no tasks but its own."""

from __future__ import annotations

import pytest

from deployments.lab.testing import RunningLab
from tests.labfixture import LabFactory

__all__ = ["SECRET", "lab"]

SECRET = "11111111-2222-3333-4444-555555555555"
_SEED = f"""
users:
  - userid: maker@pve
    tokens: [{{name: t, secret: {SECRET}, privsep: false}}]
    acl:
      - {{path: /vms, role: PVEVMAdmin}}
      - {{path: /storage, role: PVEDatastoreAdmin}}
"""


@pytest.fixture(scope="module")
def lab(lab_factory: LabFactory) -> RunningLab:
    """The lab of the module, in place of the usual one."""
    return lab_factory(seed=_SEED)
