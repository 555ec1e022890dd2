"""Due sets in memory against a naive model, and against a store whose members must all come out, whatever the cuts do."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.amount import examples
from tests.unit.near.model import JOBS, fresh_clock, run
from tocsin.clock import SeededEntropy
from tocsin.model.ids import new_ids
from tocsin.model.job import Lane, Line
from tocsin.model.partition import bucket_of, partition_of
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import Cut
from tocsin.store.port import Due, TimerKey

PARTITIONS = 4
ALL = range(PARTITIONS)
jobs = st.sampled_from(JOBS)
job_lists = st.lists(jobs, max_size=8, unique=True)


class DueSetsMachine(RuleBasedStateMachine):
    """Every answer is what a dict and a sort would answer."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = fresh_clock()
        self.near = MemoryNearTier(self.clock, PARTITIONS)
        self.waiting: dict[str, Due] = {}
        self.hand: dict[str, Due] = {}

    def line_of(self, tenant: str, lane: int) -> Line:
        return Line(tenant, "q", Lane(lane), "h", "")

    @rule(
        offers=st.lists(
            st.tuples(
                jobs,
                st.integers(-2_000, 2_000) | st.integers(0, 20),
                st.integers(1, 3),
                st.sampled_from("ab"),
                st.integers(0, 1),
            ),
            max_size=10,
        )
    )
    def offer(self, offers: list[tuple[str, int, int, str, int]]) -> None:
        dues = [
            Due(self.clock.now_ms() + after, job, version, self.line_of(tenant, lane), 0)
            for job, after, version, tenant, lane in offers
        ]
        assert run(self.near.offer(dues)) == []
        for due in dues:
            have = self.waiting.get(due.job_id) or self.hand.get(due.job_id)
            if have is None or have.version < due.version:
                self.waiting[due.job_id] = due

    @rule(most=st.integers(1, 12), wanted=st.sets(st.integers(0, 3)) | st.just(set(ALL)))
    def take(self, most: int, wanted: set[int]) -> None:
        now = self.clock.now_ms()
        ready = [
            due for due in self.waiting.values() if due.due_at <= now and partition_of(due.job_id, PARTITIONS) in wanted
        ]
        taken = run(self.near.take(sorted(wanted), now, most))
        assert len(taken) == min(most, len(ready))
        assert len({due.job_id for due in taken}) == len(taken)
        assert all(self.waiting[due.job_id] == due and due in ready for due in taken)
        left = [due for due in ready if due not in taken]
        lanes = [due.line.lane for due in taken]
        assert lanes == sorted(lanes)
        if Lane.FLEXIBLE in lanes:
            assert all(due.line.lane == Lane.FLEXIBLE for due in left)
        for tenant in "ab":
            for lane in (0, 1):
                line = self.line_of(tenant, lane)
                mine = [due.due_at for due in taken if due.line == line]
                assert mine == sorted(mine)
                if mine:
                    assert all(due.due_at >= mine[-1] for due in left if due.line == line)
        for due in taken:
            del self.waiting[due.job_id]
            self.hand[due.job_id] = due

    @rule(chosen=job_lists)
    def drop(self, chosen: list[str]) -> None:
        dues = [self.hand.pop(job) for job in chosen if job in self.hand]
        run(self.near.drop(dues))

    @rule(chosen=job_lists)
    def restore(self, chosen: list[str]) -> None:
        dues = [self.hand.pop(job) for job in chosen if job in self.hand]
        run(self.near.restore(dues))
        for due in dues:
            self.waiting.setdefault(due.job_id, due)

    @rule(chosen=job_lists)
    def remove(self, chosen: list[str]) -> None:
        run(self.near.remove(chosen))
        for job in chosen:
            self.waiting.pop(job, None)

    @rule(gone=st.sets(st.integers(0, 3), max_size=2))
    def forget(self, gone: set[int]) -> None:
        run(self.near.forget(sorted(gone)))
        for members in (self.waiting, self.hand):
            for job in [job for job in members if partition_of(job, PARTITIONS) in gone]:
                del members[job]

    @rule(ms=st.integers(0, 1_500))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    @rule(wanted=st.sets(st.integers(0, 3)) | st.just(set(ALL)))
    def look_at_the_next(self, wanted: set[int]) -> None:
        times = [due.due_at for due in self.waiting.values() if partition_of(due.job_id, PARTITIONS) in wanted]
        assert run(self.near.next_due(sorted(wanted))) == min(times, default=None)

    @invariant()
    def counts_agree(self) -> None:
        assert run(self.near.figures(range(4))).due == len(self.waiting) + len(self.hand)


class CutsMachine(RuleBasedStateMachine):
    """A small set, a flood, a loader that is interrupted anywhere: in the end every member has come out."""

    LIMIT = 8
    PAGE = 4

    def __init__(self) -> None:
        super().__init__()
        self.clock = fresh_clock()
        self.near = MemoryNearTier(self.clock, 2, due_limit=self.LIMIT)
        self.entropy = SeededEntropy(3)
        self.line = Line("a", "q", Lane.PRECISE, "h", "")
        self.start = self.clock.now_ms()
        self.stored: dict[str, Due] = {}
        self.reading: tuple[Cut, list[Due], TimerKey | None] | None = None
        self.moved: list[Due] = []

    @rule(after=st.lists(st.integers(0, 30), min_size=1, max_size=12))
    def write_and_offer(self, after: list[int]) -> None:
        ids = new_ids(len(after), self.start, self.entropy)
        dues = [Due(self.start + ms, job, 1, self.line, 0) for ms, job in zip(after, ids, strict=True)]
        self.stored.update({due.job_id: due for due in dues})
        run(self.near.offer(dues))

    @rule(most=st.integers(1, 6), ms=st.integers(0, 40))
    def fire(self, most: int, ms: int) -> None:
        taken = run(self.near.take(range(2), self.start + ms, most))
        for due in taken:
            # One that has fired already came with a page that was read before: its fire write answers void.
            self.stored.pop(due.job_id, None)
        run(self.near.drop(taken))

    @rule(chosen=st.integers(0, 1))
    def read_a_page(self, chosen: int) -> None:
        cuts = run(self.near.cuts(range(2)))
        if self.reading is None and cuts:
            cut = cuts[chosen % len(cuts)]
            self.reading = (cut, *self.page(cut))

    @rule()
    def move_the_cut_and_offer(self) -> None:
        if self.reading is not None:
            cut, dues, next_key = self.reading
            self.reading = None
            run(self.near.move_cut(cut, None if next_key is None else next_key[3], next_key))
            run(self.near.offer(dues))

    @invariant()
    def the_set_stays_small(self) -> None:
        assert run(self.near.figures(range(4))).due <= self.LIMIT * 1.25 + 12

    def teardown(self) -> None:
        self.reading = None
        for _ in range(2_000):
            if not self.stored:
                break
            self.fire(6, 100)
            self.read_a_page(0)
            self.move_the_cut_and_offer()
            self.read_a_page(1)
            self.move_the_cut_and_offer()
        assert not self.stored, "a member was lost behind a cut"
        assert run(self.near.figures(range(4))).due == 0

    def page(self, cut: Cut) -> tuple[list[Due], TimerKey | None]:
        rows = sorted(
            ((bucket_of(due.due_at), 0, "a", due.due_at, due.job_id, 1), due)
            for due in self.stored.values()
            if partition_of(due.job_id, 2) == cut.partition
        )
        if cut.after is not None:
            rows = [row for row in rows if row[0] > cut.after]
        else:
            rows = [row for row in rows if row[1].due_at >= cut.from_time]
        page = rows[: self.PAGE]
        return [due for _, due in page], page[-1][0] if len(rows) > self.PAGE else None


TestDueSets = DueSetsMachine.TestCase
TestDueSets.settings = settings(max_examples=examples(40), stateful_step_count=40)
TestCuts = CutsMachine.TestCase
TestCuts.settings = settings(max_examples=examples(40), stateful_step_count=40)
