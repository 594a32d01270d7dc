"""What the README tells people to type exists and works."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotrain.cli.app import COMMANDS, cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    lines = re.findall(r"(?:^\s*|`)(aotrain [a-z][^`\n|]*)", page.read_text(), re.MULTILINE)
    assert lines or page.parent.name == "docs"
    for line in lines:
        name, *words = shlex.split(line.partition(" #")[0])[1:]
        if name not in COMMANDS:
            continue  # `aotrain targets`, `doctor`, ... in a list, or prose
        params = cli.get_command(None, name).params
        known = {option for param in params for option in (*param.opts, *param.secondary_opts)}
        for word in words:
            if re.match("--?[a-z]", word) and "help" not in word:
                assert word in known, line


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    typed = "\n".join([*blocks(""), *re.findall("`(make [^`]+)`", README)])
    asked = set(re.findall(r"^make ([a-z]+)", typed, re.MULTILINE))
    assert {"demo", "test", "help", "bench"} <= asked
    for name in asked:
        assert re.search(rf"^{name}:.*## ", makefile, re.MULTILINE), name


def test_make_help_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z]+):", makefile, re.MULTILINE)
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert targets
    for name in targets:
        assert re.search(rf"^make {name} ", shown, re.MULTILINE), name


def test_python_example(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (code,) = blocks("python")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "trained.onnx").is_file()
    assert (tmp_path / "trained.safetensors").is_file()


def test_c_example_compiles(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no cc")
    (code,) = blocks("c")
    include, body = code.split("\n", 1)
    (tmp_path / "example.c").write_text(
        f"#include <stdio.h>\n{include}\n"
        "const void *next_images(void); const void *next_labels(void);\n"
        "int example(int steps, uint64_t image_bytes, uint64_t label_bytes);\n"
        "int example(int steps, uint64_t image_bytes, uint64_t label_bytes) {\n"
        f"{body}return 0; }}\n"
    )
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "aotrain" / "runtime")]
    subprocess.run([compiler, *flags, "-c", "example.c"], cwd=tmp_path, check=True)
