"""Where Proxflow keeps what belongs to a user: state and configuration."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def state_folder() -> Path:
    """Seeds of generated secrets, journals, locks. ``PROXFLOW_STATE_DIR`` overrides the place."""
    chosen = os.environ.get("PROXFLOW_STATE_DIR")
    return Path(chosen) if chosen else platformdirs.user_state_path("proxflow")


def config_folder() -> Path:
    """Connections and profiles of the user. ``PROXFLOW_CONFIG_DIR`` overrides the place."""
    chosen = os.environ.get("PROXFLOW_CONFIG_DIR")
    return Path(chosen) if chosen else Path.home() / ".config" / "proxflow"
