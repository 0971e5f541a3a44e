-- What is known under one reservation's id, and for how long.
--
-- A record is its state, the plan's fingerprint, the answer and the places that it holds, each with its length before
-- it, and the rest: H is held, its rest the last extension's step, how many there are, the slot of each entry, and once
-- it was extended what each was charged in all; R is a refused retry; E has ended, its rest the amounts.
-- Places are those of limits on concurrency: whose they are, then of each its charge and the counter's key, with its
-- length before it; GIVEN_BACK once they were. What an extension takes is not among them.
-- Its extensions are a hash beside it, by step: charges and slots, each list with its length before it, and the answer.
-- An entry that was skipped has the slot -1.

local HELD_KEPT_MS = 86400000
local ENDED_KEPT_MS = 600000
local GIVEN_BACK = '-'

local function read_record(stored)
  local state, plan, answer, places, from = parse('<c1c16I4c0I4c0', stored)
  return { state = state, plan = plan, answer = answer, places = places, rest = string.sub(stored, from) }
end

-- The record that MGET has found under `key`, or nothing.
local function record_at(key, stored)
  if stored then
    return read_record(stored)
  elseif redis.call('EXISTS', key) == 1 then
    error('CORRUPT record')
  end
end

local function record_of(state, plan, answer, places, rest)
  return pack('<c1c16I4c0I4c0', state, plan, #answer, answer, #places, places) .. rest
end

local function kept_ms(state)
  return text(state == 'H' and HELD_KEPT_MS or ENDED_KEPT_MS)
end

local function write_record(key, state, plan, answer, places, rest)
  redis.call('SET', key, record_of(state, plan, answer, places, rest), 'PX', kept_ms(state))
end

-- The same where there is none, before anything else is written: what MGET has not found may be of another type.
local function write_new_record(key, state, plan, answer, places, rest)
  if not redis.call('SET', key, record_of(state, plan, answer, places, rest), 'NX', 'PX', kept_ms(state)) then
    error('CORRUPT record')
  end
end

-- The places that a new reservation holds for `life`.
local function places_of(entries, life)
  local places = ''
  for _, entry in ipairs(entries) do
    if entry.code == 'o' and entry.charge > 0 then
      places = (places == '' and life or places) .. pack('<lI4c0', entry.charge, #entry.key, entry.key)
    end
  end
  return places
end

-- Of the rest of a held record: the last step, the number of extensions, and the slot of each entry.
local function read_holding(record, entries)
  local numbers = numbers_in(record.rest)
  local holding = { last = numbers[1], count = numbers[2], slots = {}, charged = {} }
  for place, entry in ipairs(entries) do
    holding.slots[place] = numbers[2 + place]
    holding.charged[place] = numbers[2 + #entries + place] or entry.charge
  end
  return holding
end

local function rest_of_held(last, count, slots, charged)
  return list_of({ last, count }) .. list_of(slots) .. (charged and list_of(charged) or '')
end

local function extension(charges, slots, answer)
  return pack('<I4c0I4c0', #charges, charges, #slots, slots) .. answer
end

-- Of an extension the charges and slots as lists, and the answer.
local function read_extension(made)
  local charges, slots, from = parse('<I4c0I4c0', made)
  return charges, slots, string.sub(made, from)
end

-- The extensions of a reservation, the latest first.
local function read_extensions(key)
  local made, steps = redis.call('HGETALL', key), {}
  for place = 1, #made, 2 do
    local charges, slots = read_extension(made[place + 1])
    steps[#steps + 1] = { number = tonumber(made[place]), charges = numbers_in(charges), slots = numbers_in(slots) }
  end
  table.sort(steps, function(one, other) return one.number > other.number end)
  return steps
end

-- What each entry of a reservation has booked, the latest first, and whether its extensions could be read. Where not,
-- what they booked counts as booked with the reservation.
local function read_bookings(holding, entries, extensions_key)
  local bookings, is_read, steps = {}, true, {}
  if holding.count > 0 then
    is_read, steps = pcall(read_extensions, extensions_key)
    is_read = is_read and #steps == holding.count
  end
  for place, entry in ipairs(entries) do
    local own = {}
    for _, step in ipairs(is_read and steps or {}) do
      if step.slots[place] >= 0 then
        own[#own + 1] = { step.slots[place], step.charges[place] }
      end
    end
    if not is_read then
      own[1] = { holding.slots[place], sub(holding.charged[place], entry.charge) }
    end
    own[#own + 1] = { holding.slots[place], entry.charge }
    bookings[place] = own
  end
  return bookings, is_read
end

-- Charges what was used without a reservation, to where it was admitted.
local function record_unheld(entries, actuals, at, now)
  for place, entry in ipairs(entries) do
    local units, millionths = actuals[2 * place - 1], actuals[2 * place]
    if not entry.is_spoilt and (units > 0 or millionths > 0) then
      local counter = entry.stored or entry.counter
      counter.rule.record(counter, entry.limit, at, units, millionths)
      entry.changed = counter
    end
  end
  write_changed(entries, now)
end
