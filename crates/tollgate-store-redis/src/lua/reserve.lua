-- Charges all of a plan that fits, or nothing.
--
-- KEYS: the record, then a counter an entry, then, where a hard budget is among them, the mark that Redis knows
-- what was spent. ARGV, one text: the plan's fingerprint (16 bytes), the life that asks (8), the time or 0 (8), flags
-- (a byte), the plan.
--
-- Flags: 1 for a retry, 2 to look only, 4 if there is the mark, 8 for a part of a plan.

local fingerprint, life, given, flags = parse('<c16c8lB', ARGV[1])
local now = now_ms(given)
local is_retry, is_look, is_guarded, is_split = flags % 2 >= 1, flags % 4 >= 2, flags % 8 >= 4, flags >= 8
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

if is_guarded and not values[#KEYS] then
  return 'X unknown'
end
local entries, spoilt = read_entries(string.sub(ARGV[1], 34), KEYS, values, 1, now)
if spoilt then
  return 'X spoilt ' .. spoilt
end
local answer, fits = decide(entries, now, is_split)
if fits and not is_look then
  local slots = {}
  for place, entry in ipairs(entries) do
    slots[place], entry.changed = book(entry, entry.charge, now)
  end
  write_new_record(KEYS[1], 'H', fingerprint, answer, places_of(entries, life), rest_of_held(0, 0, slots))
  write_changed(entries, now)
  return is_split and answer .. '\n' .. trace(entries) or answer
elseif not fits and is_retry then
  write_new_record(KEYS[1], 'R', fingerprint, answer, '', '')
end
return answer
