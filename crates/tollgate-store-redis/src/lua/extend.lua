-- Asks for more under a held reservation: all of it, or nothing.
--
-- KEYS: the record, its extensions, then a counter an entry. ARGV: time or nothing, the plan's fingerprint, flags,
-- the step, the charges, the most extensions there may be, the plan.
--
-- Flags: "l" to look only, "s" for a part of a plan.

local now, fingerprint, flags, step, charges = now_ms(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local is_split = has(flags, 's')
local values = redis.call('MGET', KEYS[1], unpack(KEYS, 3))

local record = record_at(KEYS[1], values[1])
if not record then
  return 'X held'
elseif record.plan ~= fingerprint then
  return 'X plan'
elseif record.state ~= 'H' then
  return 'X held'
end

local keys = { KEYS[1], unpack(KEYS, 3) }
local entries, spoilt = read_entries(ARGV[7], keys, values, 1, now)
if spoilt then
  return 'X spoilt ' .. spoilt
end
local asked = numbers_in(charges)
local holding = read_holding(record, entries)
if step <= holding.last then
  local made = redis.call('HGET', KEYS[2], ARGV[4])
  if not made then
    return 'X stale'
  end
  local before, _, answer = read_extension(made)
  return before == charges and answer or 'X charges'
elseif holding.count >= tonumber(ARGV[6]) then
  return 'X many'
end

local charged = holding.charged
for place, entry in ipairs(entries) do
  entry.is_skipped = not entry.rule.can_extend(entry.counter, holding.slots[place], now)
  -- What a request needs in all is asked of the limit on the largest one.
  local before = entry.rule.is_whole_request and charged[place] or 0
  entry.ask = not entry.is_skipped and add(asked[place], before)
end

local answer, fits = decide(entries, now, is_split)
if fits and not has(flags, 'l') then
  local slots = {}
  for place, entry in ipairs(entries) do
    if entry.is_skipped then
      slots[place] = -1
    else
      slots[place], entry.changed = book_more(entry, asked[place], now)
      charged[place] = add(charged[place], asked[place])
    end
  end
  -- Before anything else is written: what lies there may be of another type.
  redis.call('HSET', KEYS[2], ARGV[4], extension(charges, list_of(slots), answer))
  redis.call('PEXPIRE', KEYS[2], text(HELD_KEPT_MS))
  write_changed(entries, now)
  local rest = rest_of_held(step, holding.count + 1, holding.slots, charged)
  write_record(KEYS[1], 'H', fingerprint, record.answer, record.places, rest)
  return is_split and answer .. '\n' .. trace(entries) or answer
end
return answer
