-- Charges what one copy had spent before, a part of it, once.
--
-- KEYS: the parts that the copy has told, then a counter an entry. ARGV: time or nothing, the part's name, units and millionths
-- of each entry, the moment of each, the plan without charges.

local KEPT_MS = '316224000000'
local now = now_ms(ARGV[1])

if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  return 'S already'
end
local keys = { unpack(KEYS, 2) }
local entries = read_all_entries(ARGV[5], keys, redis.call('MGET', unpack(keys)), 0, now)
local actuals, moments = numbers_in(ARGV[3]), numbers_in(ARGV[4])
for place, entry in ipairs(entries) do
  local counter = entry.stored or entry.counter
  counter.rule.record(counter, entry.limit, moments[place], actuals[2 * place - 1], actuals[2 * place])
  entry.changed = counter
end
redis.call('HSET', KEYS[1], ARGV[2], '1')
redis.call('PEXPIRE', KEYS[1], KEPT_MS)
write_changed(entries, now)
return 'S applied'
