-- Gives the places of limits on concurrency back that a reservation holds, as its copy has died. What it was charged
-- otherwise stays charged, and counters that cannot be read stay as they are. Answers how many places are free.
--
-- KEYS: the record, then the counters of its places. ARGV: time or nothing, the life that has ended, how many ms old
-- the reservation has to be.

local life = ARGV[2]
local values = redis.call('MGET', unpack(KEYS))
local record = record_at(KEYS[1], values[1])
if not record or record.state ~= 'H' or string.sub(record.places, 1, #life) ~= life then
  return '0'
end
local now, from, entries, freed = now_ms(ARGV[1]), #life + 1, {}, 0
-- The answer begins with the moment of the admission.
local admitted_at = tonumber(string.match(record.answer, '^A (%d+)'))
if not admitted_at or now - admitted_at < tonumber(ARGV[3]) then
  return '0'
end

while from <= #record.places do
  local charge, key
  charge, key, from = parse('<lI4c0', record.places, from)
  local number = #entries + 1
  if key ~= KEYS[number + 1] then
    error('ERR the places are not those of the call')
  end
  local stored = values[number + 1]
  local counter = stored and restored(stored)
  entries[number] = { key = key, stored = counter, changed = false }
  local is_there = stored or redis.call('EXISTS', key) == 1
  freed = freed + (is_there and not counter and 0 or 1)
  if counter and counter.code == 'o' then
    counter.rule.settle(counter, nil, { { 0, charge } })
    entries[number].changed = counter
  end
end
write_changed(entries, now)
redis.call('SET', KEYS[1], record_of('H', record.plan, record.answer, GIVEN_BACK, record.rest), 'KEEPTTL')
return text(freed)
