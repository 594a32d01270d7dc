"""A cache folder of the tests' own: what was tuned on this machine must not change a test.

The built loader is taken from, and left in, the user's: building it is slow, and it is keyed by
its sources.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from aotrain.runtime.building import cache_folder


def pytest_configure(config: pytest.Config) -> None:
    users = cache_folder() / "runtime"
    users.mkdir(parents=True, exist_ok=True)
    own = Path(tempfile.mkdtemp(prefix="aotrain-tests-"))
    (own / "aotrain").mkdir()
    (own / "aotrain" / "runtime").symlink_to(users.resolve())
    os.environ["XDG_CACHE_HOME"] = str(own)
    config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
