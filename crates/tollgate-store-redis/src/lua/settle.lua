-- Replaces what a reservation holds by what was used. Never refused.
--
-- KEYS: the record, its extensions, then a counter an entry. ARGV: time or nothing, the plan's fingerprint,
-- units and millionths of each entry, the moment of the admission, the plan.

local now, fingerprint, amounts = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local values = quick_values
local record = values[1] and read_record(values[1])

if record and record.plan ~= fingerprint then
  return 'X plan'
elseif record and record.state == 'E' then
  return record.rest == amounts and 'S already' or 'S conflict'
end

local keys = { KEYS[1], unpack(KEYS, 3) }
local entries, actuals = read_entries(ARGV[5], keys, values, 1, now), numbers_in(amounts)
if not record or record.state == 'R' then
  record_unheld(entries, actuals, tonumber(ARGV[4]), now)
  write_record(KEYS[1], 'E', fingerprint, '', '', amounts)
  return 'S unheld'
end

local holding = read_holding(record, entries)
local bookings = read_bookings(holding, entries, KEYS[2])
for place, entry in ipairs(entries) do
  if entry.code == 'o' and record.places == GIVEN_BACK then
    -- What it took at its reservation is not given back twice.
    table.remove(bookings[place])
  end
  entry.changed = settle(entry, bookings[place], actuals[2 * place - 1], actuals[2 * place], now)
end
write_changed(entries, now)
if holding.count > 0 then
  redis.call('DEL', KEYS[2])
end
write_record(KEYS[1], 'E', fingerprint, record.answer, '', amounts)
return 'S applied'
