"""Artifacts to test the loader with, and the loader's size in the summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotrain import runtime
from tests.runtime import toy


@pytest.fixture(scope="session")
def toy_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Softmax regression, batch 4, 3 features, 5 classes. Read only."""
    return toy.build(tmp_path_factory.mktemp("toy") / "toy.aot")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    built = runtime.build()
    for file in (built.aotrun, built.library):
        nbytes = file.stat().st_size
        terminalreporter.write_line(f"loader: {file.name} {nbytes} bytes, at most 65536")
