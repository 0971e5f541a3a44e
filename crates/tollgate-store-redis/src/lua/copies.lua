-- Which copies have brought back what they had spent, and whether that is enough to decide over hard budgets:
-- "<this one has, 1 or 0> <how many have> <it is enough, 1 or 0> <this one was lost among them, 1 or 0>". Where it is
-- enough, nobody counts them.
--
-- KEYS: the copies, a mark that it is enough, the parts that this one has told. ARGV: this copy, how many are needed,
-- and of how many parts this one has told all, or nothing. Where some of them are missing they were lost meanwhile.
--
-- The mark is made where the copies are, and lives as long. Where it is there without them, only they were deleted or
-- evicted: what they had told is still there, and would count twice if told again. So a copy that has told all leaves
-- a note in place of its parts, and with that and the mark it is among the copies again; without a note, as older
-- versions left none, where there are no copies at all. Where the mark goes afterwards, or was made anew before, both
-- were deleted, one after the other: then all is told again.

local KEPT_MS, NOTE = '316224000000', 'all'
-- A copy that has told, or the mark for it; a copy that was lost, or a mark that was.
local TOLD, FOUND = '1', '2'

local function leave_note()
  redis.call('DEL', KEYS[3])
  redis.call('HSET', KEYS[3], NOTE, '1')
  redis.call('PEXPIRE', KEYS[3], KEPT_MS)
end

local function enter(as)
  redis.call('HSET', KEYS[1], ARGV[1], as)
  redis.call('PEXPIRE', KEYS[1], KEPT_MS)
  leave_note()
end

local ready = redis.call('GET', KEYS[2])
local copies = ready and {} or redis.call('HGETALL', KEYS[1])
for place = 1, #copies, 2 do
  if copies[place + 1] == FOUND then
    redis.call('HDEL', KEYS[1], copies[place])
  end
end

local has_told, is_lost, count = false, false, 0
local has, has_note = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1, redis.call('HEXISTS', KEYS[3], NOTE) == 1
if has then
  if not has_note then
    leave_note()
  end
elseif ARGV[3] ~= '' then
  if redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[3]) then
    enter(TOLD)
    has, has_told = true, true
  end
elseif ready == TOLD and (has_note or redis.call('EXISTS', KEYS[1], KEYS[3]) == 0) then
  enter(FOUND)
  has, is_lost = true, true
elseif has_note then
  redis.call('DEL', KEYS[3])
end
if not ready then
  count = redis.call('HLEN', KEYS[1])
  if count >= tonumber(ARGV[2]) then
    redis.call('SET', KEYS[2], has_told and TOLD or FOUND, 'PX', KEPT_MS)
    ready = true
  end
end
return string.format('%d %d %d %d', has and 1 or 0, count, ready and 1 or 0, is_lost and 1 or 0)
