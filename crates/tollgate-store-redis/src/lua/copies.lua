-- Which copies have brought back what they had spent, and whether that is enough to decide over hard budgets:
-- "<this one has, 1 or 0> <how many have> <it is enough, 1 or 0>".
--
-- KEYS: the copies, a mark that it is enough. ARGV: this copy, how many are needed, "done" if this one has.

local KEPT_MS = '316224000000'
local field = 'copy:' .. ARGV[1]

if ARGV[3] == 'done' then
  redis.call('HSET', KEYS[1], field, '1')
  redis.call('PEXPIRE', KEYS[1], KEPT_MS)
end
local count = 0
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(name, 1, 5) == 'copy:' then
    count = count + 1
  end
end
local ready = redis.call('EXISTS', KEYS[2])
if ready == 0 and count >= tonumber(ARGV[2]) then
  redis.call('SET', KEYS[2], '1', 'PX', KEPT_MS)
  ready = 1
end
return string.format('%d %d %d', redis.call('HEXISTS', KEYS[1], field), count, ready)
