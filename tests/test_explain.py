"""Every code that is raised has a page, and every page a code that is raised."""

from pathlib import Path

import pytest

from aotrain.explain import CODE, STAGES, normalize, pages

ROOT = Path(__file__).parent.parent
SOURCES = [
    path
    for folder in ("aotrain", "cli", "targets", "schedules")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".c", ".h") and "explain" not in path.parts
]
DOCSTRING_ONLY = {"AOT-G012", "AOT-A000"}  # an example in errors.py; "no error" in error.c


def raised():
    return {c for path in SOURCES for c in CODE.findall(path.read_text())} - DOCSTRING_ONLY


def test_every_code_has_a_page_and_the_other_way_round():
    assert raised() == set(pages())


@pytest.mark.parametrize("page", pages().values(), ids=lambda page: page.code)
def test_page(page):
    assert page.code[4] in STAGES
    assert page.title[0].islower() or page.title.startswith("--")
    assert not page.title.endswith(".")
    assert page.text.endswith(".")


@pytest.mark.parametrize("text", ["AOT-G001", "g1", "aot-g01", "[AOT-G001]", "G001"])
def test_normalize(text):
    assert normalize(text) == "AOT-G001"
