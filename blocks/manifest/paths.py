"""Where this user's settings and state are kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_config_path, user_state_path


def state_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for what must survive a run; ``PROXFLOW_STATE_DIR`` names another one."""
    given = (os.environ if env is None else env).get("PROXFLOW_STATE_DIR")
    return Path(given).expanduser() if given else user_state_path("proxflow")


def config_dir(env: Mapping[str, str] | None = None) -> Path:
    """The folder for what the user writes; ``PROXFLOW_CONFIG_DIR`` names another one."""
    given = (os.environ if env is None else env).get("PROXFLOW_CONFIG_DIR")
    return Path(given).expanduser() if given else user_config_path("proxflow")
