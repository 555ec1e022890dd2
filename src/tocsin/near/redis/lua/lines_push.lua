#!lua
-- Put jobs that have fired into their lines, and wake claims that wait for them. Refused when the server is full.
--
-- KEYS[1], ARGV[1] to [3]  see lines.lua, which stands in front
-- ARGV[4]  '1': these are a line's parked jobs themselves
-- ARGV[5]  a line's limit    ARGV[6]  a tenant's limit    ARGV[7]  how many a line may have however full its tenant is
-- then runs of jobs of one line and priority:
--   place, tenant, lane, suspect, priority, handler, line, the tenant's jobs in other tags, the number of jobs,
--   and for each: job, version, due_at
-- answers  {callbacks that came, the numbers (from 0) of refused jobs separated by spaces, tenant, its jobs in this tag, ...}
-- Idempotent by job: one that is here in the same version or a newer one is passed over.

local unpark, line_limit, tenant_limit, reserve = ARGV[4] == '1', tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local FEW, SMALL = 16, 512
local refused, came, tenants = {}, {}, {}
local at, number = 8, 0
while at <= #ARGV do
  local place, tenant, lane, suspect, priority, handler, line = unpack(ARGV, at, at + 6)
  local elsewhere, size = tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8])
  local kind = kind_of(lane, suspect, priority, handler)
  local rest = US .. priority .. US .. line
  local is_parked = not unpark and redis.call('HEXISTS', PARKED, line) == 1
  local entries, members, fresh, gained = {}, {}, {}, 0

  local function room()
    if is_parked then
      return 0
    end
    local in_line = tonumber(redis.call('HGET', LINES, line) or 0)
    local of_tenant = tonumber(redis.call('HGET', TENANTS, tenant) or 0) + elsewhere
    return math.min(line_limit - in_line, math.max(tenant_limit - of_tenant, reserve - in_line))
  end

  local function write()
    if #entries > 0 then
      enter(place, tenant, line, kind, entries)
      -- A small hash is a list in which each new field is looked for from the front: 10 us a job in a batch of hundreds. A value
      -- of more than 64 bytes makes it a table.
      local is_small = #members > 2 * FEW and redis.call('HLEN', JOBS) < SMALL
      if is_small then
        redis.call('HSET', JOBS, '', string.rep('.', 65))
      end
      run('HSET', JOBS, members)
      if is_small then
        redis.call('HDEL', JOBS, '')
      end
      gained = gained + #entries / 2
      entries, members, fresh = {}, {}, {}
    end
  end

  local jobs = {}
  at = at + 9
  for which = 1, size do
    jobs[which] = ARGV[at + 3 * which - 3]
  end
  local free = room()
  for which, have in ipairs(look_up(JOBS, jobs)) do
    local job, version, due_at = jobs[which], ARGV[at + 3 * which - 2], ARGV[at + 3 * which - 1]
    if fresh[job] then
      write()
      have = redis.call('HGET', JOBS, job)
    end
    local comes = true
    if have then
      comes = tonumber(string.match(have, VERSION)) < tonumber(version)
      if comes then
        write()
        if leave(job, have) then
          redis.call('HDEL', JOBS, job)
          free = room()
        else
          -- In hand: kept aside until the hand is emptied, since the claim may find the older one void.
          local aside = redis.call('HGET', NEWER, job)
          if not aside or tonumber(string.match(aside, VERSION)) < tonumber(version) then
            redis.call('HSET', NEWER, job, due_at .. US .. version .. rest)
          end
          comes = false
        end
      end
    end
    if comes then
      if free > 0 then
        free = free - 1
        fresh[job] = true
        entries[#entries + 1] = score_of(due_at, priority)
        entries[#entries + 1] = job
        members[#members + 1] = job
        members[#members + 1] = due_at .. US .. version .. rest
      else
        refused[#refused + 1] = number + which - 1
      end
    end
  end
  write()
  at, number = at + 3 * size, number + size
  if gained > 0 then
    came[#came + 1] = {place, handler, gained}
  end
  tenants[tenant] = true
end
local reply = {wake_for(came), table.concat(refused, ' ')}
for tenant in pairs(tenants) do
  reply[#reply + 1] = tenant
  reply[#reply + 1] = redis.call('HGET', TENANTS, tenant) or '0'
end
tell()
return reply
