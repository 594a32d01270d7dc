"""docs/operators.md says what the rule table holds."""

from __future__ import annotations

from aotrain.autodiff import table


def test_page_is_current() -> None:
    assert table.PAGE.read_text() == table.render(), "run python -m aotrain.autodiff.table"


def test_page_lists_each_operator_once() -> None:
    names = [n for group in table.families().values() for n in group]
    assert len(names) == len(set(names)) > 150
    assert {"relax.matmul", "relax.nn.conv2d", "relax.median"} <= set(names)


def test_stale_page_is_noticed(tmp_path, monkeypatch) -> None:
    page = tmp_path / "operators.md"
    page.write_text(table.render() + "\n- more\n")
    monkeypatch.setattr(table, "PAGE", page)
    monkeypatch.setattr("sys.argv", ["table", "--check"])
    assert table.main() == 1
    monkeypatch.setattr("sys.argv", ["table"])
    assert table.main() == 0
    monkeypatch.setattr("sys.argv", ["table", "--check"])
    assert table.main() == 0
