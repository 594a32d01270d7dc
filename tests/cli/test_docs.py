"""docs/cli.md and docs/errors.md say what the program says."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_page(reference):
    # Word by word: versions of click break lines differently.
    written, made = (DOCS / "cli.md").read_text(), reference.cli_page()
    assert written.split() == made.split(), "run 'make docs'"


def test_error_table(reference):
    lines = (DOCS / "errors.md").read_text().splitlines()
    listed = [line for line in lines if line.startswith("| AOT-")]
    assert listed == reference.error_rows(), "run 'make docs'"
