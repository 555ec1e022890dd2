"""Ready lines in memory against a naive model: a dict of jobs, sorted at every pop."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.amount import examples
from tests.unit.near.model import JOBS, fresh_clock, run
from tocsin.model.job import HTTP, Lane, Line, ready_score
from tocsin.near.memory import MemoryNearTier
from tocsin.near.port import Pop, QueueGate
from tocsin.store.port import Due

LINE_LIMIT, TENANT_LIMIT = 5, 12
QUEUES = [("a", "q"), ("a", "r"), ("b", "q")]
jobs = st.sampled_from(JOBS)
lines = st.builds(
    Line,
    st.sampled_from("ab"),
    st.just("q") | st.sampled_from("qr"),
    st.sampled_from(list(Lane)),
    st.sampled_from([HTTP, "h", "i"]),
    st.sampled_from(["", "k"]),
    st.sampled_from([False, False, True]),
)


def score(due: Due) -> tuple[int, int]:
    return (due.line.lane, ready_score(due.due_at, due.priority))


class ReadyLinesMachine(RuleBasedStateMachine):
    """What comes out is what a sort over the eligible jobs would put first."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = fresh_clock()
        self.near = MemoryNearTier(self.clock, 4, line_limit=LINE_LIMIT, tenant_limit=TENANT_LIMIT)
        self.start = self.clock.now_ms()
        self.ready: dict[str, Due] = {}
        self.hands: dict[str, tuple[float, dict[str, Due]]] = {}
        self.newer: dict[str, Due] = {}
        self.open: dict[tuple[str, str], bool] = {}
        self.parked: set[Line] = set()
        self.requests = 0
        self.just_suspect: set[tuple[object, ...]] = set()

    # coming

    @rule(
        pushes=st.lists(
            st.tuples(jobs, st.integers(0, 600_000), st.integers(1, 3), lines, st.integers(-1, 1)), max_size=8
        ),
        unpark=st.booleans(),
    )
    def push(self, pushes: list[tuple[str, int, int, Line, int]], unpark: bool) -> None:
        self.return_overdue()
        dues = [Due(self.start + at, job, version, line, priority) for job, at, version, line, priority in pushes]
        expected = []
        for due in dues:
            have = self.ready.get(due.job_id)
            if have is not None and have.version >= due.version:
                continue
            held = self.in_hand().get(due.job_id)
            if have is None and held is not None:
                if held.version < due.version:
                    self.newer[due.job_id] = due
                continue
            self.ready.pop(due.job_id, None)
            same_line = sum(each.line == due.line for each in self.ready.values())
            same_tenant = sum(each.line.tenant == due.line.tenant for each in self.ready.values())
            if same_line >= LINE_LIMIT or same_tenant >= TENANT_LIMIT or (due.line in self.parked and not unpark):
                expected.append(due)
            else:
                self.ready[due.job_id] = due
        assert run(self.near.push(dues, unpark=unpark)) == expected

    @rule(line=lines, parked=st.booleans())
    def set_parked(self, line: Line, parked: bool) -> None:
        run(self.near.set_parked(line, 0, parked))
        (self.parked.add if parked else self.parked.discard)(line)

    @rule(queue=st.sampled_from(QUEUES), is_open=st.booleans())
    def configure(self, queue: tuple[str, str], is_open: bool) -> None:
        run(self.near.configure(*queue, QueueGate(paused=not is_open)))
        self.open[queue] = is_open

    # going

    @rule(
        queue=st.sampled_from(QUEUES),
        handlers=st.none() | st.sampled_from([("h",), ("i", "h"), ("none",)]),
        most=st.integers(1, 6),
    )
    def pop_tasks(self, queue: tuple[str, str], handlers: tuple[str, ...] | None, most: int) -> None:
        self.return_overdue()
        wish = self.wish(most, *queue, handlers)
        eligible = [
            due
            for due in self.ready.values()
            if (due.line.tenant, due.line.queue) == queue
            and due.line.handler != HTTP
            and (handlers is None or due.line.handler in handlers)
        ]
        popped = run(self.near.pop(wish))
        if queue not in self.open:
            assert popped.dues == []
            assert popped.ask == ((queue,) if eligible else ())
            return
        assert popped.ask == ()
        if not self.open[queue]:
            assert popped.dues == []
            return
        self.check_handed_out(popped.dues, eligible, most, by_score=True, place=queue)
        self.give(wish, popped.dues)

    @rule(most=st.integers(1, 6))
    def pop_callbacks(self, most: int) -> None:
        self.return_overdue()
        wish = self.wish(most, None, None, None)
        callbacks = [due for due in self.ready.values() if due.line.handler == HTTP]
        eligible = [due for due in callbacks if self.open.get((due.line.tenant, due.line.queue))]
        popped = run(self.near.pop(wish))
        unknown = {(due.line.tenant, due.line.queue) for due in callbacks} - set(self.open)
        assert set(popped.ask) <= unknown
        assert popped.dues or popped.ask or not unknown
        self.check_handed_out(popped.dues, eligible, most, by_score=False, place=())
        for tenant in "ab":
            mine = [score(due) for due in popped.dues if due.line.tenant == tenant]
            assert mine == sorted(mine)
            left = [
                score(due)
                for due in eligible
                if due not in popped.dues and due.line.tenant == tenant and not due.line.suspect
            ]
            if mine and not popped.dues[0].line.suspect:
                assert all(each >= mine[-1] for each in left)
        self.give(wish, popped.dues)

    @rule(keep=st.booleans())
    def settle(self, keep: bool) -> None:
        self.return_overdue()
        if not self.hands:
            return
        request_id = next(iter(self.hands))
        _, dues = self.hands.pop(request_id)
        claimed = [(job, 1) for job in dues] if keep else []
        run(self.near.settle(request_id, claimed))
        self.put_back([self.newer.pop(job) for job in dues if job in self.newer])
        if claimed:
            again = run(self.near.pop(self.wish(1, "a", "q", None, request_id)))
            assert again.repeated
            assert list(again.attempts) == claimed

    @rule()
    def repeat_a_request(self) -> None:
        self.return_overdue()
        for request_id, (_, dues) in self.hands.items():
            again = run(self.near.pop(self.wish(1, "a", "q", None, request_id)))
            assert not again.repeated
            assert {due.job_id for due in again.dues} >= set(dues)

    @rule()
    def unpop(self) -> None:
        self.return_overdue()
        if self.hands:
            request_id = next(iter(self.hands))
            _, dues = self.hands.pop(request_id)
            run(self.near.unpop(request_id))
            self.put_back([self.newer.pop(job, due) for job, due in dues.items()])

    @rule(chosen=st.lists(jobs, max_size=5, unique=True))
    def remove(self, chosen: list[str]) -> None:
        self.return_overdue()
        run(self.near.remove(chosen))
        for job in chosen:
            self.ready.pop(job, None)
            for _, dues in self.hands.values():
                if dues.pop(job, None) is not None:
                    self.newer.pop(job, None)

    @rule(seconds=st.sampled_from([0.5, 4.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def figures_agree(self) -> None:
        self.return_overdue()
        figures = run(self.near.figures(range(4)))
        assert (figures.ready, figures.in_hand) == (len(self.ready), len(self.in_hand()))
        for tenant, queue in QUEUES:
            times = [due.due_at for due in self.ready.values() if due.line[:2] == (tenant, queue)]
            assert run(self.near.ready_count(tenant, queue)) == (len(times), min(times, default=None))

    @invariant()
    def lines_with_room_agree(self) -> None:
        def count(line: Line) -> int:
            return sum(due.line == line for due in self.ready.values())

        def of_tenant(line: Line) -> int:
            return sum(due.line.tenant == line.tenant for due in self.ready.values())

        assert set(run(self.near.lines_with_room(range(4)))) == {
            line for line in self.parked if count(line) * 2 < LINE_LIMIT and of_tenant(line) < TENANT_LIMIT
        }

    # the model's own

    def wish(
        self,
        most: int,
        tenant: str | None,
        queue: str | None,
        handlers: tuple[str, ...] | None,
        request_id: str | None = None,
    ) -> Pop:
        self.requests += 1
        return Pop(
            request_id=request_id or f"r{self.requests}",
            tenant=tenant,
            queue=queue,
            handlers=handlers,
            most=most,
            now_ms=self.clock.now_ms(),
        )

    def check_handed_out(
        self, dues: list[Due], eligible: list[Due], most: int, *, by_score: bool, place: tuple[object, ...]
    ) -> None:
        assert all(due in eligible for due in dues)
        ordinary = sorted(score(due) for due in eligible if not due.line.suspect)
        suspects = sorted(score(due) for due in eligible if due.line.suspect)
        if not dues:
            assert not eligible
            return
        lane = min(due.line.lane for due in eligible)
        if dues[0].line.suspect:
            assert len(dues) == 1
            assert dues[0].line.lane == lane
            first = [each for each in ordinary if each[0] == lane]
            if by_score:
                assert score(dues[0]) == suspects[0]
                assert not first or suspects[0] <= first[0]
            # Never twice in a row while ordinary ones of the lane wait.
            assert not first or (*place, lane) not in self.just_suspect
            self.just_suspect.add((*place, lane))
            return
        assert not any(due.line.suspect for due in dues)
        assert len(dues) == min(most, len(ordinary))
        got = [score(due) for due in dues]
        if by_score:
            assert got == ordinary[: len(dues)]
            first_suspect = [each for each in suspects if each[0] == lane]
            if first_suspect and got[0][0] == lane and (*place, lane) not in self.just_suspect:
                assert got[0] <= first_suspect[0], "an earlier suspect was passed over"
        else:
            assert [each[0] for each in got] == [each[0] for each in ordinary[: len(dues)]]
        self.just_suspect -= {(*place, each) for each in {due.line.lane for due in dues}}

    def give(self, wish: Pop, dues: list[Due]) -> None:
        for due in dues:
            assert self.ready.pop(due.job_id) == due
        if dues:
            self.hands[wish.request_id] = (self.clock.elapsed_s() + 10.0, {due.job_id: due for due in dues})

    def in_hand(self) -> dict[str, Due]:
        return {job: due for _, dues in self.hands.values() for job, due in dues.items()}

    def return_overdue(self) -> None:
        for request_id, (until, dues) in list(self.hands.items()):
            if until <= self.clock.elapsed_s():
                del self.hands[request_id]
                self.put_back([self.newer.pop(job, due) for job, due in dues.items()])
        run(self.near.figures(range(4)))

    def put_back(self, dues: list[Due]) -> None:
        for due in dues:
            self.ready.setdefault(due.job_id, due)


TestReadyLines = ReadyLinesMachine.TestCase
TestReadyLines.settings = settings(max_examples=examples(60), stateful_step_count=40)
