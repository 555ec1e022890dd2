"""Shorthands for schedules in a process in virtual time."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.life.world import World
from tocsin import wire
from tocsin.model.job import JobState
from tocsin.store.schedules import ScheduleRow

TENANT = "acme"
HANDLER = {"type": "task", "handler": "do"}


async def define(world: World, name: str = "s", **fields: Any) -> wire.Schedule:
    """Make a schedule; fields of the job template are in `template`."""
    return await world.on.define.create(TENANT, _body(wire.ScheduleCreate, fields | {"name": name}))


async def put(world: World, name: str = "s", **fields: Any) -> wire.Schedule:
    """Upsert a schedule."""
    return (await world.on.define.upsert(TENANT, name, _body(wire.SchedulePut, fields)))[0]


async def change(world: World, made: wire.Schedule, **fields: Any) -> wire.Schedule:
    """PATCH."""
    body = msgspec.convert(fields, wire.SchedulePatch)
    return await world.on.define.patch(TENANT, made.schedule_id, body, None)


async def row_of(world: World, made: wire.Schedule) -> ScheduleRow:
    """A schedule's row, which must be there."""
    row = (await world.on.store.schedules.get([made.schedule_id]))[0]
    assert row is not None
    return row


async def jobs_of(world: World, made: wire.Schedule) -> list[JobState]:
    """A schedule's jobs, oldest occurrence first."""
    page = await world.on.present.jobs(TENANT, made.schedule_id, None, 200)
    return list(reversed(page.jobs))


async def skips_of(world: World, made: wire.Schedule) -> list[tuple[str, str, int, str]]:
    """A schedule's skips, oldest first: from, to, count, reason."""
    found, _ = await world.on.present.skips(TENANT, made.schedule_id, None, 200)
    return [(one.from_, one.to, one.count, one.reason) for one in reversed(found)]


def _body(kind: type[Any], fields: dict[str, Any]) -> Any:
    template = {"queue": "q", "target": HANDLER} | fields.pop("template", {})
    return msgspec.json.decode(msgspec.json.encode({"job_template": template} | fields), type=kind)
