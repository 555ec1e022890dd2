"""In hand: what a claim has popped is its own for ten seconds, and a repeated request gets the same."""

from __future__ import annotations

from tests.conformance.near.world import World, ids


async def test_a_repeat_before_the_claim_is_written_gets_the_same_jobs(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(5)])
    wish = world.wish(3)
    first = await world.pop(wish)
    again = await world.pop(wish)
    assert first.dues == again.dues == dues[:3]
    assert not again.repeated
    assert (first.again, again.again) == (False, True), "whoever claims must know that it may have been done"
    assert (await world.near.figures(world.all)).in_hand == 3


async def test_a_repeat_of_the_executors_request_gets_the_same_callbacks(world: World) -> None:
    for tenant in "ab":
        await world.open((tenant, "mail"))
    await world.near.push(dues := [world.callback(at, tenant="ab"[at % 2]) for at in range(6)])
    wish = world.executor_wish(4)
    first, again = await world.pop(wish), await world.pop(wish)
    assert sorted(first.dues) == sorted(again.dues)
    assert len(first.dues) == 4
    assert (first.again, again.again) == (False, True)
    assert set(await world.claim(world.executor_wish())) == {due.job_id for due in dues} - {
        due.job_id for due in first.dues
    }


async def test_a_repeat_after_the_claim_is_written_gets_the_attempts(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(5)])
    wish = world.wish(3)
    await world.pop(wish)
    await world.near.settle(wish.request_id, claimed := [(dues[0].job_id, 1), (dues[2].job_id, 4)])
    world.clock.advance(59)
    again = await world.pop(wish)
    assert again.repeated
    assert again.dues == []
    assert list(again.attempts) == claimed
    assert await world.claim() == ids(dues[3:])


async def test_an_answer_is_forgotten_after_a_minute(world: World) -> None:
    await world.open()
    await world.near.push([one := world.due()])
    wish = world.wish()
    await world.claim(wish)
    await world.near.push([two := world.due()])
    world.clock.advance(61)
    popped = await world.pop(wish)
    assert not popped.repeated
    assert popped.dues == [two]
    assert one not in popped.dues


async def test_a_claim_that_got_nothing_may_look_again_under_the_same_request(world: World) -> None:
    await world.open()
    await world.near.push([world.due()])
    wish = world.wish()
    await world.pop(wish)
    await world.near.settle(wish.request_id, [])
    await world.near.push([due := world.due()])
    popped = await world.pop(wish)
    assert (popped.dues, popped.repeated) == ([due], False)


async def test_jobs_that_are_not_settled_return_to_their_line_in_ten_seconds(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(5)])
    await world.pop(world.wish(3))
    world.clock.advance(9.9)
    assert await world.claim(world.wish(1)) == [dues[3].job_id]
    world.clock.advance(0.2)
    figures = await world.near.figures(world.all)
    assert (figures.ready, figures.in_hand) == (4, 0)
    assert await world.claim() == ids([*dues[:3], dues[4]])


async def test_a_step_of_the_wall_clock_neither_returns_jobs_nor_keeps_them(world: World) -> None:
    await world.open()
    await world.near.push([due := world.due()])
    await world.pop()
    world.clock.step_wall(3_600)
    assert (await world.near.figures(world.all)).in_hand == 1
    world.clock.step_wall(-7_200)
    world.clock.advance(10.1)
    assert await world.claim() == [due.job_id]


async def test_a_claim_that_could_not_be_written_gives_its_jobs_back_at_once(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(5)])
    wish = world.wish(3)
    await world.pop(wish)
    await world.near.unpop(wish.request_id)
    await world.near.unpop("unheard of")
    assert await world.claim() == ids(dues)


async def test_a_late_settle_takes_the_claimed_jobs_out_of_their_line(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(2)])
    wish = world.wish()
    await world.pop(wish)
    world.clock.advance(11)
    assert (await world.near.figures(world.all)).ready == 2
    await world.near.settle(wish.request_id, [(dues[0].job_id, 1)])
    assert await world.claim() == [dues[1].job_id]


async def test_a_job_removed_while_in_hand_does_not_return(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(2)])
    wish = world.wish()
    await world.pop(wish)
    await world.near.remove([dues[0].job_id])
    await world.near.unpop(wish.request_id)
    assert await world.claim() == [dues[1].job_id]


async def test_a_request_gives_back_only_what_is_still_in_its_own_hand(world: World) -> None:
    await world.open()
    await world.near.push([due := world.due()])
    first, second = world.wish(), world.wish()
    await world.pop(first)
    await world.near.remove([due.job_id])
    await world.near.push([again := world.due(job_id=due.job_id, version=2)])
    assert (await world.pop(second)).dues == [again]
    await world.near.unpop(first.request_id)
    assert await world.claim() == []
    await world.near.unpop(second.request_id)
    assert await world.claim() == [due.job_id]


async def test_suspect_jobs_that_return_are_still_handed_out_alone(world: World) -> None:
    await world.open()
    await world.near.push([suspect := world.due(-5, suspect=True), other := world.due()])
    assert (await world.pop()).dues == [suspect]
    world.clock.advance(11)
    claims = [await world.claim(), await world.claim()]
    assert sorted(claims) == sorted([[suspect.job_id], [other.job_id]])


async def test_requests_of_different_names_never_share_jobs(world: World) -> None:
    await world.open()
    await world.near.push(dues := [world.due(at) for at in range(100)])
    got = [due.job_id for _ in range(12) for due in (await world.pop(world.wish(9))).dues]
    assert got == ids(dues)
