-- Which copies have brought back what they had spent, and whether that is enough to decide over hard budgets:
-- "<this one has, 1 or 0> <how many have> <it is enough, 1 or 0>". Where it is enough, nobody counts them.
--
-- KEYS: the copies, a mark that it is enough, the parts that this one has told. ARGV: this copy, how many are needed,
-- and of how many parts this one has told all, or nothing. Where some of them are missing they were lost meanwhile.

local KEPT_MS = '316224000000'

if ARGV[3] ~= '' and redis.call('HLEN', KEYS[3]) >= tonumber(ARGV[3]) then
  redis.call('HSET', KEYS[1], ARGV[1], '1')
  redis.call('PEXPIRE', KEYS[1], KEPT_MS)
  redis.call('DEL', KEYS[3])
end
local has, count = redis.call('HEXISTS', KEYS[1], ARGV[1]), 0
local ready = redis.call('GET', KEYS[2])
if not ready then
  count = redis.call('HLEN', KEYS[1])
  if count >= tonumber(ARGV[2]) then
    redis.call('SET', KEYS[2], '1', 'PX', KEPT_MS)
    ready = true
  end
end
return string.format('%d %d %d', has, count, ready and 1 or 0)
