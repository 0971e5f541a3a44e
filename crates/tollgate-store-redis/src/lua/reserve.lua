-- Charges all of a plan that fits, or nothing.
--
-- KEYS: the record, then a counter an entry, then, where a hard budget is among them, the mark that Redis knows
-- what was spent. ARGV: time or nothing, the plan's fingerprint, "f" for a first attempt or "r" for a retry,
-- "guarded" if there is the mark, the plan.

local now, fingerprint = now_ms(ARGV[1]), ARGV[2]
local values = redis.call('MGET', unpack(KEYS))

if values[1] then
  local record = read_record(values[1])
  if record.plan ~= fingerprint then
    return 'X plan'
  elseif record.answer == '' then
    return 'X ended'
  end
  return record.answer
end

if ARGV[4] == 'guarded' and not values[#KEYS] then
  return 'X unknown'
end
local entries = read_entries(5, KEYS, values, 1, now)
local answer, fits = decide(entries, now)
if fits then
  local slots, charged = {}, {}
  for place, entry in ipairs(entries) do
    slots[place], entry.changed = book(entry, entry.charge, now)
    charged[place] = entry.charge
  end
  write_changed(entries, now)
  write_record(KEYS[1], 'H', fingerprint, answer, holding_text(0, 0, slots, charged))
elseif ARGV[3] == 'r' then
  write_record(KEYS[1], 'R', fingerprint, answer, '')
end
return answer
