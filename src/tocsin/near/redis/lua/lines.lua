-- What the programs of the ready lines share; it stands in front of each of them.
--
-- KEYS[1]  the alive key of a line tag; all other names are made from it and the epoch
-- ARGV[1]  the epoch
-- ARGV[2]  the steady clock in ms: how long jobs are in hand, answers remembered, claims waiting
-- ARGV[3]  the wall clock in ms: whether a pause is over
-- answers  LOST if the tag does not hold this epoch
--
--   jobs                  hash   job -> member, of every job in line or in hand
--   set:<place>US<kind>   zset   the jobs in line of one kind by score; kind: lane, suspect, priority (- 0 +), handler
--   kinds:<place>         set    the kinds that a queue has jobs of, a few empty ones among them
--   calling               set    the places that have callbacks, a few without them among them
--   lines, tenants        hash   line, tenant -> how many jobs are in line
--   hands / hand          zset   request -> until when / hash  request -> its jobs
--   held                  count  of all jobs in hand
--   newer                 hash   job -> a newer member that came while the older one was in hand
--   answered / answers    zset   request -> until when / hash  request -> number, job, attempt, job, attempt, ...
--   remembered            count  of all jobs in answers, and of answers
--   gates                 hash   place -> 'open', 'paused', or the wall clock's ms at which the pause is over
--   parked                hash   line -> the partitions in which jobs are parked
--   wait:<place>          zset   waiting claims by the time since they wait; '' is the place of callbacks
--
-- A job is in `jobs` if and only if it is in one set or in one hand. A place is: tenant US queue.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 'LOST'
end

local US = '\31'
local NOW, WALL = tonumber(ARGV[2]), tonumber(ARGV[3])
local AT = string.sub(KEYS[1], 1, -6) .. ARGV[1] .. ':'
local JOBS, NEWER, LINES, TENANTS = AT .. 'jobs', AT .. 'newer', AT .. 'lines', AT .. 'tenants'
local HANDS, HAND, HELD = AT .. 'hands', AT .. 'hand', AT .. 'held'
local ANSWERED, ANSWERS, REMEMBERED = AT .. 'answered', AT .. 'answers', AT .. 'remembered'
local GATES, CALLING, PARKED = AT .. 'gates', AT .. 'calling', AT .. 'parked'
-- due_at, priority, line, place, tenant, lane, suspect, handler
local MEMBER = '^(%-?%d+)\31%d+\31(%-?%d+)\31((([^\31]*)\31[^\31]*)\31(%d)\31(%d)\31([^\31]*)\31.*)$'
local LINE = '^%-?%d+\31%d+\31%-?%d+\31(.*)$'
local VERSION = '^%-?%d+\31(%d+)\31'
local SIGN = {['1'] = '+', ['-1'] = '-'}
local BOOST_MS = 300000
local LONGEST_WAIT_MS = 1000
local ONE_CALL = 4000 -- as many arguments as one command is given: Lua's stack holds 8,000
local HANDS_A_PASS, ANSWERS_A_PASS = 20, 50

local function kinds_key(place)
  return AT .. 'kinds:' .. place
end

local function set_key(place, kind)
  return AT .. 'set:' .. place .. US .. kind
end

local function kind_of(lane, suspect, priority, handler)
  return lane .. suspect .. (SIGN[priority] or '0') .. handler
end

local function is_callback(kind)
  return #kind == 3
end

local function score_of(due_at, priority)
  if priority == '0' or not SIGN[priority] then
    return due_at
  end
  return string.format('%.0f', tonumber(due_at) - tonumber(priority) * BOOST_MS)
end

-- Run a command with any number of arguments behind its key.
local function run(command, key, arguments)
  for from = 1, #arguments, ONE_CALL do
    redis.call(command, key, unpack(arguments, from, math.min(from + ONE_CALL - 1, #arguments)))
  end
end

-- The values of fields, false where there is none.
local function look_up(key, fields)
  if #fields == 0 then
    return {}
  end
  if #fields <= ONE_CALL then
    return redis.call('HMGET', key, unpack(fields))
  end
  local values = {}
  for from = 1, #fields, ONE_CALL do
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, from, math.min(from + ONE_CALL - 1, #fields)))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- Change the number of jobs in a line and of its tenant.
local function count(line, tenant, change)
  if redis.call('HINCRBY', LINES, line, change) <= 0 then
    redis.call('HDEL', LINES, line)
  end
  if redis.call('HINCRBY', TENANTS, tenant, change) <= 0 then
    redis.call('HDEL', TENANTS, tenant)
  end
end

-- Put jobs of one line and kind in line: scores and jobs by turns. Their members are in `jobs`.
local function enter(place, tenant, line, kind, entries)
  run('ZADD', set_key(place, kind), entries)
  redis.call('SADD', kinds_key(place), kind)
  if is_callback(kind) then
    redis.call('SADD', CALLING, place)
  end
  count(line, tenant, #entries / 2)
end

-- Take one job out of its line; whether it was there, that is: not in hand. Its member stays.
local function leave(job, member)
  local _, priority, line, place, tenant, lane, suspect, handler = string.match(member, MEMBER)
  if redis.call('ZREM', set_key(place, kind_of(lane, suspect, priority, handler)), job) == 0 then
    return false
  end
  count(line, tenant, -1)
  return true
end

-- The gate of a place: 'open', 'closed', or 'ask' if nobody has told it.
local function gate(place)
  local set = redis.call('HGET', GATES, place)
  if not set then
    return 'ask'
  end
  if set == 'open' or (set ~= 'paused' and tonumber(set) <= WALL) then
    return 'open'
  end
  return 'closed'
end

-- Hands.

local function hand_of(request)
  local text = redis.call('HGET', HAND, request)
  if not text then
    return nil
  end
  local jobs = {}
  for job in string.gmatch(text, '%S+') do
    jobs[#jobs + 1] = job
  end
  return jobs
end

-- Empty a request's hand; its jobs, or nil if there was no such hand.
local function open_hand(request)
  local jobs = hand_of(request)
  if jobs then
    redis.call('HDEL', HAND, request)
    redis.call('ZREM', HANDS, request)
    redis.call('DECRBY', HELD, #jobs)
  end
  return jobs
end

-- Put what was in hand back in line, newer members in the place of older ones; `came` gets {place, handler, number}.
local function put_back(jobs, came)
  local members = look_up(JOBS, jobs)
  local newer = redis.call('EXISTS', NEWER) == 1 and look_up(NEWER, jobs)
  local groups = {}
  for at, job in ipairs(jobs) do
    local member = members[at]
    if newer and newer[at] then
      member = newer[at]
      redis.call('HSET', JOBS, job, member)
      redis.call('HDEL', NEWER, job)
    end
    if member then
      local due_at, priority, line, place, tenant, lane, suspect, handler = string.match(member, MEMBER)
      local kind = kind_of(lane, suspect, priority, handler)
      local group = groups[line .. US .. kind]
      if not group then
        group = {place, tenant, line, kind, {}}
        groups[line .. US .. kind] = group
      end
      local entries = group[5]
      entries[#entries + 1] = score_of(due_at, priority)
      entries[#entries + 1] = job
    end
  end
  for _, group in pairs(groups) do
    enter(unpack(group))
    came[#came + 1] = {group[1], string.sub(group[4], 4), #group[5] / 2}
  end
end

local function forget_answer(request)
  local text = redis.call('HGET', ANSWERS, request)
  redis.call('ZREM', ANSWERED, request)
  if text then
    redis.call('HDEL', ANSWERS, request)
    redis.call('DECRBY', REMEMBERED, 1 + tonumber(string.match(text, '^%d+')))
  end
end

-- What dead processes have in hand goes back, some of it in each pass; answers that are too old go.
local function return_overdue(came)
  for _, request in ipairs(redis.call('ZRANGEBYSCORE', HANDS, '-inf', NOW, 'LIMIT', 0, HANDS_A_PASS)) do
    put_back(open_hand(request), came)
  end
  for _, request in ipairs(redis.call('ZRANGEBYSCORE', ANSWERED, '-inf', NOW, 'LIMIT', 0, ANSWERS_A_PASS)) do
    forget_answer(request)
  end
end

-- Forget jobs in line or in hand.
local function forget(jobs)
  for at, member in ipairs(look_up(JOBS, jobs)) do
    local job = jobs[at]
    if member then
      redis.call('HDEL', JOBS, job)
      if not leave(job, member) then
        redis.call('HDEL', NEWER, job)
        -- Rare: somebody cancels between a pop and its claim. There are about as many hands as claims being written.
        for _, request in ipairs(redis.call('HKEYS', HAND)) do
          local text = redis.call('HGET', HAND, request)
          local from, to = string.find(text, job .. ' ', 1, true)
          if from then
            redis.call('HSET', HAND, request, string.sub(text, 1, from - 1) .. string.sub(text, to + 1))
            redis.call('DECR', HELD)
          end
        end
      end
    end
  end
end

-- Waking.

local told = {}

local function fits(waiter, wanted)
  if not wanted or not string.find(waiter, US, 1, true) then
    return true
  end
  for _, handler in ipairs(wanted) do
    if string.find(waiter, US .. handler .. US, 1, true) then
      return true
    end
  end
  return false
end

-- Choose up to `most` claims that wait at a place and can take one of the wanted handlers' jobs (nil: any), the longest waiting first.
local function wake(place, wanted, most)
  local key = AT .. 'wait:' .. place
  redis.call('ZREMRANGEBYSCORE', key, '-inf', NOW - LONGEST_WAIT_MS)
  local passed = 0
  while most > 0 do
    local waiters = redis.call('ZRANGE', key, passed, passed + 99)
    if #waiters == 0 then
      return
    end
    for _, waiter in ipairs(waiters) do
      if most > 0 and fits(waiter, wanted) then
        redis.call('ZREM', key, waiter)
        local serial, channel = string.match(waiter, '^(%d+) ([^\31]*)')
        told[channel] = (told[channel] and told[channel] .. ' ' or '') .. serial
        most = most - 1
      else
        passed = passed + 1
      end
    end
  end
end

-- Wake for jobs that came; answers how many callbacks are among them, whose waiting claims another tag knows.
local function wake_for(came)
  local callbacks = 0
  for _, each in ipairs(came) do
    local place, handler, number = each[1], each[2], each[3]
    if gate(place) ~= 'closed' then
      if handler == '' then
        callbacks = callbacks + number
      else
        wake(place, {handler}, number)
      end
    end
  end
  return callbacks
end

-- Tell those chosen; comes last.
local function tell()
  for channel, serials in pairs(told) do
    redis.call('PUBLISH', channel, serials)
  end
end

-- Taking.

-- The sets of one place, lane and suspicion that a claim may take from; wanted: {handler = true}, nil: all tasks.
local function chosen(place, kinds, lane, suspect, wanted, sets)
  sets = sets or {}
  for _, kind in ipairs(kinds) do
    if string.sub(kind, 1, 2) == lane .. suspect then
      local handler = string.sub(kind, 4)
      if (wanted and wanted[handler]) or (not wanted and handler ~= '') then
        sets[#sets + 1] = {place = place, kind = kind, key = set_key(place, kind)}
      end
    end
  end
  return sets
end

-- Score and job of the best of some sets; nil: they are empty, and their kinds are forgotten.
local function best(sets)
  local score, job
  for _, set in ipairs(sets) do
    local head = redis.call('ZRANGE', set.key, 0, 0, 'WITHSCORES')
    if #head == 0 then
      redis.call('SREM', kinds_key(set.place), set.kind)
    else
      local its = tonumber(head[2])
      if not score or its < score or (its == score and head[1] < job) then
        score, job = its, head[1]
      end
    end
  end
  return score, job
end

local function before(one, other)
  return one.score < other.score or (one.score == other.score and one.job < other.job)
end

-- Let the first of a heap sink to its place.
local function sink(heap)
  local at, size = 1, #heap
  while true do
    local child = 2 * at
    if child > size then
      return
    end
    if child < size and before(heap[child + 1], heap[child]) then
      child = child + 1
    end
    if not before(heap[child], heap[at]) then
      return
    end
    heap[at], heap[child] = heap[child], heap[at]
    at = child
  end
end

-- Step to a set's next job; false: there is none.
local function step(set, piece)
  set.at = set.at + 2
  if set.at > #set.read then
    set.read = redis.call('ZRANGE', set.key, set.from, set.from + piece - 1, 'WITHSCORES')
    set.from, set.at = set.from + piece, 1
    if #set.read == 0 then
      return false
    end
  end
  set.job, set.score = set.read[set.at], tonumber(set.read[set.at + 1])
  return true
end

local function drop_first(set, number)
  if number > 0 then
    redis.call('ZREMRANGEBYRANK', set.key, 0, number - 1)
  end
  if redis.call('EXISTS', set.key) == 0 then
    redis.call('SREM', kinds_key(set.place), set.kind)
  end
end

-- Move the best of some sets, up to `most` in all, to `taken`.
local function take(sets, most, taken)
  if #sets == 1 then
    local jobs = redis.call('ZRANGE', sets[1].key, 0, most - 1)
    for _, job in ipairs(jobs) do
      taken[#taken + 1] = job
    end
    return drop_first(sets[1], #jobs)
  end
  local piece = math.ceil(most / #sets) + 8
  local heap = {}
  for _, set in ipairs(sets) do
    set.read, set.at, set.from, set.number = {}, 0, 0, 0
    if step(set, piece) then
      heap[#heap + 1] = set
    end
  end
  table.sort(heap, before)
  while most > 0 and #heap > 0 do
    local first = heap[1]
    taken[#taken + 1] = first.job
    first.number, most = first.number + 1, most - 1
    if not step(first, piece) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    sink(heap)
  end
  for _, set in ipairs(sets) do
    drop_first(set, set.number)
  end
end

-- Append jobs and their members to an answer.
local function show(jobs, reply)
  local at = #reply
  for which, member in ipairs(look_up(JOBS, jobs)) do
    if member then
      reply[at + 1], reply[at + 2] = jobs[which], member
      at = at + 2
    end
  end
end

-- What a request got before, if it did: from its hand, or its answer.
local function before_now(request, reply)
  local jobs = hand_of(request)
  if jobs then
    reply[1] = 'HAND'
    show(jobs, reply)
    return true
  end
  local until_at = redis.call('ZSCORE', ANSWERED, request)
  if until_at and tonumber(until_at) > NOW then
    reply[1], reply[3] = 'ANSWER', redis.call('HGET', ANSWERS, request)
    return true
  end
  return false
end

-- Put jobs that were taken out of their sets into a request's hand, and into the answer.
local function hand_out(request, until_at, jobs, reply)
  if #jobs == 0 then
    return
  end
  local from = #reply
  show(jobs, reply)
  local numbers = {}
  for at = from + 2, #reply, 2 do
    local line = string.match(reply[at], LINE)
    numbers[line] = (numbers[line] or 0) + 1
  end
  for line, number in pairs(numbers) do
    count(line, string.match(line, '^[^\31]*'), -number)
  end
  redis.call('HSET', HAND, request, table.concat(jobs, ' ') .. ' ')
  redis.call('ZADD', HANDS, until_at, request)
  redis.call('INCRBY', HELD, #jobs)
end

