-- Replaces what a reservation holds by what was used. Never refused. Counters that cannot be read are left as they are,
-- and told: "S spoilt <indices>". That its extensions cannot be read is "S extensions".
--
-- KEYS: the record, its extensions, then a counter an entry. ARGV, one text: the plan's fingerprint (16 bytes), the
-- moment of the admission (8), or -1 where only what is still held is settled, the time or 0 (8), units and millionths of
-- each entry (16), the plan.

local fingerprint, admitted_at, given = parse('<c16ll', ARGV[1])
local now, plan_from = now_ms(given), 33 + 16 * (#KEYS - 2)
local amounts, plan = string.sub(ARGV[1], 33, plan_from - 1), string.sub(ARGV[1], plan_from)
local values = quick_values
local record = record_at(KEYS[1], values[1])

if record and record.plan ~= fingerprint then
  return 'X plan'
elseif record and record.state == 'E' then
  return (admitted_at < 0 or record.rest == amounts) and 'S already' or 'S conflict'
end

local keys = { KEYS[1], unpack(KEYS, 3) }
local entries, spoilt = read_entries(plan, keys, values, 1, now)
local actuals = numbers_in(amounts)
if not record or record.state == 'R' then
  if admitted_at < 0 then
    return 'S gone'
  end
  record_unheld(entries, actuals, admitted_at, now)
  write_record(KEYS[1], 'E', fingerprint, '', '', amounts)
  return spoilt and 'S spoilt ' .. spoilt or 'S unheld'
end

local holding = read_holding(record, entries)
local bookings, is_read = read_bookings(holding, entries, KEYS[2])
for place, entry in ipairs(entries) do
  if entry.code == 'o' and record.places == GIVEN_BACK then
    -- What it took at its reservation is not given back twice.
    table.remove(bookings[place])
  end
  entry.changed = not entry.is_spoilt
    and settle(entry, bookings[place], actuals[2 * place - 1], actuals[2 * place], now)
end
write_changed(entries, now)
if holding.count > 0 and is_read then
  redis.call('DEL', KEYS[2])
end
write_record(KEYS[1], 'E', fingerprint, record.answer, '', amounts)
return spoilt and 'S spoilt ' .. spoilt or (is_read and 'S applied' or 'S extensions')
