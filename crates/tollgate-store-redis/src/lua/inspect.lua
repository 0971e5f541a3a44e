-- How counters stand: "<spent> <millionths> <held> <remaining> <resets at>" of each.
--
-- KEYS: a counter an entry. ARGV: time or nothing, a plan without charges.

local now = now_ms(ARGV[1])
local entries = read_all_entries(ARGV[2], KEYS, redis.call('MGET', unpack(KEYS)), 0, now)
local views = {}
for place, entry in ipairs(entries) do
  local units, millionths, held = entry.rule.tally(entry.counter, entry.limit, now)
  local resets_at = entry.rule.resets_at(entry.counter, entry.limit, now)
  views[place] = format('%d %d %d %d %s', units, millionths, held,
    entry.rule.remaining(entry.counter, entry.limit, now), resets_at and text(resets_at) or '-')
end
return table.concat(views, ';')
