-- Charges all of a plan that fits, or nothing.
--
-- KEYS: the record, then a counter an entry, then, where a hard budget is among them, the mark that Redis knows
-- what was spent. ARGV: time or nothing, the plan's fingerprint with the life that asks behind it, flags, the plan.
--
-- Flags: "r" for a retry, "l" to look only, "g" if there is the mark, "s" for a part of a plan.

local now, flags = now_ms(ARGV[1]), ARGV[3]
local fingerprint, life = string.sub(ARGV[2], 1, 16), string.sub(ARGV[2], 17)
local is_look, is_split = has(flags, 'l'), has(flags, 's')
local values = redis.call('MGET', unpack(KEYS))

if values[1] and not is_look then
  local record = read_record(values[1])
  if record.plan ~= fingerprint then
    return 'X plan'
  elseif record.answer == '' then
    return 'X ended'
  end
  return record.answer
end

if has(flags, 'g') and not values[#KEYS] then
  return 'X unknown'
end
local entries = read_entries(ARGV[4], KEYS, values, 1, now)
local answer, fits = decide(entries, now, is_split)
if fits and not is_look then
  local slots = {}
  for place, entry in ipairs(entries) do
    slots[place], entry.changed = book(entry, entry.charge, now)
  end
  write_changed(entries, now)
  write_record(KEYS[1], 'H', fingerprint, answer, places_of(entries, life), rest_of_held(0, 0, slots))
  return is_split and answer .. '\n' .. trace(entries) or answer
elseif not fits and has(flags, 'r') then
  write_record(KEYS[1], 'R', fingerprint, answer, '', '')
end
return answer
