"""The order of trials, and what is left of them: nothing twice, all kept, the same for a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from aotrain.passes.graph import Kernel
from aotrain.schedules.cpu import candidates, schedule
from aotrain.tuning.choices import choices, key
from aotrain.tuning.database import Database, read
from aotrain.tuning.measure import Trial
from aotrain.tuning.search import Choices, Task, resume, search
from tests.schedules.kernels import TARGET, matmul

NAME = "cpu:x86_64,x86-64-v3"


def task(n: int = 64, ns: int = 1000) -> Task:
    func = matmul(48, n, 40)
    return Task(key(func), Kernel(f"m{n}", func), (2,), ns, candidates(func, TARGET))


def flat(task: Task, choices: Choices) -> Trial:
    """Tall tiles are what is fast."""
    tall, now = choices[0].height, task.best[0].height
    return Trial("won", now / tall) if tall > now else Trial("slower", 1.0)


def test_the_first_candidate_is_the_models_own() -> None:
    func = matmul(48, 64, 40)
    (found,) = candidates(func, TARGET)
    assert str(schedule(func, TARGET, found[:1])[0]) == str(schedule(func, TARGET)[0])


def test_what_is_best_is_found_and_nothing_tried_twice(tmp_path: Path) -> None:
    one = task()
    tallest = max(c.height for c in one.space[0][:96])
    database = Database(tmp_path / "a", NAME)
    done = search([one], database, flat)
    assert one.best[0].height == tallest
    tried = [record.tried for record in database.records]
    assert len(set(tried)) == len(tried) == done


def test_the_same_seed_tries_the_same(tmp_path: Path) -> None:
    files = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        database = Database(tmp_path / name, NAME)
        search([task(), task(32)], database, flat, trials=30, seed=seed)
        files.append(database.path.read_bytes())
    assert files[0] == files[1] != files[2]


def test_the_larger_share_is_tried_more(tmp_path: Path) -> None:
    small, large = task(64, 100), task(32, 1000)
    never = lambda task, choices: Trial("slower", 1.1)  # noqa: E731
    assert search([small, large], Database(tmp_path / "a", NAME), never, trials=33) == 33
    assert large.trials > 5 * small.trials > 0


@pytest.mark.parametrize("outcome", ["wrong", "crashed", "hung", "failed"])
def test_a_bad_candidate_costs_one_trial_and_is_recorded(tmp_path: Path, outcome: str) -> None:
    database, one = Database(tmp_path / "a", NAME), task()
    before = one.best
    assert search([one], database, lambda task, choices: Trial(outcome), trials=3) == 3
    assert [r.outcome for r in read(NAME, database.path).records] == [outcome] * 3
    assert one.best == before and database.best() == {}


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    calls = []

    def interrupted(task: Task, choices: Choices) -> Trial:
        calls.append(choices)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return flat(task, choices)

    path = tmp_path / "a"
    with pytest.raises(KeyboardInterrupt):
        search([task()], Database(path, NAME), interrupted)
    again, known = task(), read(NAME, path)
    assert len(known.records) == 5
    resume([again], known)
    won = [r.choices[0]["height"] for r in known.records if r.outcome == "won"]
    assert again.best[0].height == max(won) > task().best[0].height
    search([again], known, flat, trials=20)
    tried = [record.tried for record in known.records]
    assert len(set(tried)) == len(tried) == 25


def test_a_compilation_gets_what_won(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = task()
    search([one], read(NAME), flat, trials=10)
    renamed = Kernel("other", one.kernel.func.with_attr("global_symbol", "other"))
    found = choices(NAME, [renamed, Kernel("unknown", matmul(8, 8, 8))])
    assert found.of == {"other": one.best}
    assert choices("cpu:x86_64,znver4", [renamed]).of == {}


def test_equal_kernels_have_one_key() -> None:
    assert key(matmul(8, 8, 8)) == key(matmul(8, 8, 8)) != key(matmul(8, 8, 9))
