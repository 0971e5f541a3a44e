-- Takes back what a part of a plan was charged, because another part refuses. Counters that cannot be read are left as they
-- are.
--
-- KEYS: the record, its extensions, then a counter an entry. ARGV: time or nothing, the plan's fingerprint, 0 or the
-- extension's step, a refusal to keep as the answer to repetitions or nothing, the trace of the charge or nothing,
-- the plan.

local now, fingerprint, step, refusal = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local values = redis.call('MGET', KEYS[1], unpack(KEYS, 3))
local record = record_at(KEYS[1], values[1])

-- What is not there, or over, or another's, has been taken back. A refusal becomes that of the whole plan.
if not record or record.plan ~= fingerprint or record.state ~= 'H' then
  if record and record.plan == fingerprint and record.state == 'R' and refusal ~= '' then
    write_record(KEYS[1], 'R', fingerprint, refusal, '', '')
  end
  return 'U'
end
local keys = { KEYS[1], unpack(KEYS, 3) }
local entries = read_entries(ARGV[6], keys, values, 1, now)
local charges = {}
local holding, before, became = read_holding(record, entries), {}, {}
local made = step > 0 and redis.call('HGET', KEYS[2], ARGV[3])
if step > 0 and (not made or holding.last ~= step) then
  return 'U'
end
local from = 1
while from <= #ARGV[5] do
  before[#before + 1], became[#became + 1], from = parse('<I4c0I4c0', ARGV[5], from)
end
local slots = holding.slots
if made then
  charges, slots = read_extension(made)
  charges, slots = numbers_in(charges), numbers_in(slots)
end
local restored, charged = {}, holding.charged
for place, entry in ipairs(entries) do
  local charge = made and charges[place] or entry.charge
  -- A place that was given back is not given back twice.
  local is_given_back = not made and entry.code == 'o' and record.places == GIVEN_BACK
  if slots[place] >= 0 and not is_given_back then
    if entry.is_spoilt then
      -- Nothing of it is known.
    elseif became[place] and became[place] ~= before[place] and became[place] == (values[place + 1] or '') then
      restored[#restored + 1] = place
    else
      entry.changed = settle(entry, { { slots[place], charge } }, 0, 0, now)
    end
    if made then
      charged[place] = sub(charged[place], charge)
    end
  end
end

write_changed(entries, now)
for _, place in ipairs(restored) do
  if before[place] == '' then
    redis.call('DEL', entries[place].key)
  else
    redis.call('SET', entries[place].key, before[place], 'KEEPTTL')
  end
end
if made then
  redis.call('HDEL', KEYS[2], ARGV[3])
  local last = 0
  for _, other in ipairs(redis.call('HKEYS', KEYS[2])) do
    last = max(last, tonumber(other))
  end
  local rest = rest_of_held(last, holding.count - 1, holding.slots, charged)
  write_record(KEYS[1], 'H', fingerprint, record.answer, record.places, rest)
elseif refusal ~= '' then
  write_record(KEYS[1], 'R', fingerprint, refusal, '', '')
else
  redis.call('DEL', KEYS[1])
end
return 'U'
