"""`tocsin worker`: finding the worker that was named, and saying what is wrong with the name."""

import pytest

from tocsin.cli.worker import load
from tocsin.errors import UsageError


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory with a few modules; none stays imported."""
    import sys

    (tmp_path / "good_jobs.py").write_text("import tocsin\nworker = tocsin.Worker('q')\nother = 5\n")
    (tmp_path / "broken_jobs.py").write_text("x = 1\nraise ValueError('no settings')\n")
    (tmp_path / "wrong_jobs.py").write_text("def (\n")
    (tmp_path / "needing_jobs.py").write_text("import surely_not_installed\n")
    (tmp_path / "empty_jobs.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_jobs")]:
        del sys.modules[name]


def test_a_worker_of_the_current_directory_is_found(here):
    assert load("good_jobs:worker").queues == ("q",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("good_jobs", "must be MODULE:APP"),
        (":worker", "must be MODULE:APP"),
        ("good_jobs:", "must be MODULE:APP"),
        ("absent_jobs:worker", "there is no module 'absent_jobs' in"),
        ("good_jobs.deeper:worker", "good_jobs.deeper"),
        ("good_jobs:wroker", "good_jobs has no 'wroker'; its workers are: worker"),
        ("good_jobs:other", "good_jobs:other is int, not a tocsin.Worker; its workers are: worker"),
        ("empty_jobs:worker", "it defines no tocsin.Worker at its top"),
        ("broken_jobs:worker", "ValueError: no settings"),
        ("wrong_jobs:worker", "wrong_jobs.py:1"),
        ("needing_jobs:worker", "it needs 'surely_not_installed', which is not installed"),
    ],
)
def test_what_is_wrong_with_the_name_is_said(here, name, said):
    with pytest.raises(UsageError) as refused:
        load(name)
    assert said in str(refused.value)


def test_options_change_the_worker_before_it_runs(here, tocsin, monkeypatch):
    from tocsin.sdk.worker import Worker

    ran = []
    monkeypatch.setattr(Worker, "run", lambda self: ran.append((self.queues, self.concurrency, self.prefetch)))
    assert tocsin("worker", "good_jobs:worker", "-q", "a", "-q", "b", "--concurrency", "7", "--prefetch", "9")[0] == 0
    assert ran == [(("a", "b"), 7, 9)]


def test_a_schedule_that_is_declined_ends_the_worker_with_one(here, tocsin, monkeypatch):
    from tests.cli.stand_in import Script, problem
    from tocsin.sdk import worker

    (here / "nightly_jobs.py").write_text(
        "import tocsin\nworker = tocsin.Worker('q')\n@worker.cron('0 25 * * *')\ndef tidy(payload): ...\n"
    )
    errors = [{"pointer": "/cron", "detail": "hour: 25 is above 23"}]
    declining = Script([problem(422, "invalid", "Invalid request", "/cron: hour: 25 is above 23", errors=errors)])
    monkeypatch.setattr(worker, "HttpTransport", lambda url, token: declining)
    code, out, err = tocsin("worker", "nightly_jobs:worker")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == (
        "tocsin: Invalid request: the schedule 'q.tidy' (@worker.cron on tidy): /cron: hour: 25 is above 23 (422)"
    )
