-- What is known under one reservation's id, and for how long.
--
-- A record is "<state>|<plan>|<answer>|<rest>": H is held, its rest the last extension's step, how many
-- there are, and "<slot>" of each entry, once it was extended "<slot>:<charged>"; R is a refused retry; E has
-- ended, its rest the amounts.
-- Its extensions are a hash beside it: "<charges>|<slots, - where skipped>|<answer>" by step.

local HELD_KEPT_MS = 86400000
local ENDED_KEPT_MS = 600000

local function read_record(stored)
  local state, plan, answer, rest = match(stored, '^([HRE])|(%x+)|([^|]*)|(.*)$')
  if not state then
    error('CORRUPT record')
  end
  return { state = state, plan = plan, answer = answer, rest = rest }
end

local function write_record(key, state, plan, answer, rest)
  local kept_ms = state == 'H' and HELD_KEPT_MS or ENDED_KEPT_MS
  redis.call('SET', key, table.concat({ state, plan, answer, rest }, '|'), 'PX', text(kept_ms))
end

-- Of the rest of a held record: the last step, the number of extensions, and the slot of each entry.
local function read_holding(record)
  local last, count, list = match(record.rest, '^(%d+) (%d+) ?(.*)$')
  local holding = { last = tonumber(last), count = tonumber(count), slots = {}, charged = {} }
  for slot, sum in string.gmatch(list, '(%d+):?(%d*)') do
    local place = #holding.slots + 1
    holding.slots[place], holding.charged[place] = tonumber(slot), tonumber(sum) or false
  end
  return holding
end

-- What each entry was charged in all: its charge in the plan until it was extended.
local function read_charged(holding, entries)
  for place, entry in ipairs(entries) do
    holding.charged[place] = holding.charged[place] or entry.charge
  end
  return holding.charged
end

local function holding_text(last, count, slots, charged)
  local fields = { format('%d %d', last, count) }
  for place, slot in ipairs(slots) do
    fields[place + 1] = charged and format('%d:%d', slot, charged[place]) or text(slot)
  end
  return table.concat(fields, ' ')
end

-- Numbers of a list, in order.
local function numbers_in(list)
  local numbers = {}
  for number in string.gmatch(list, '%d+') do
    numbers[#numbers + 1] = tonumber(number)
  end
  return numbers
end

-- What each entry of a reservation has booked, the latest first.
local function read_bookings(holding, entries, extensions_key)
  local bookings, steps = {}, {}
  for place in ipairs(entries) do
    bookings[place] = {}
  end
  if holding.count > 0 then
    local made = redis.call('HGETALL', extensions_key)
    for place = 1, #made, 2 do
      steps[#steps + 1] = { number = tonumber(made[place]), made = made[place + 1] }
    end
    table.sort(steps, function(one, other) return one.number > other.number end)
  end
  for _, step in ipairs(steps) do
    local charges, slots = match(step.made, '^([^|]*)|([^|]*)|')
    local asked, place = numbers_in(charges), 0
    for slot in string.gmatch(slots, '%S+') do
      place = place + 1
      if slot ~= '-' then
        table.insert(bookings[place], { tonumber(slot), asked[place] })
      end
    end
  end
  for place, entry in ipairs(entries) do
    table.insert(bookings[place], { holding.slots[place], entry.charge })
  end
  return bookings
end

-- Charges what was used without a reservation, to where it was admitted.
local function record_unheld(entries, actuals, at, now)
  for place, entry in ipairs(entries) do
    local units, millionths = actuals[2 * place - 1], actuals[2 * place]
    if units > 0 or millionths > 0 then
      local counter = entry.stored or entry.counter
      counter.rule.record(counter, entry.limit, at, units, millionths)
      entry.changed = counter
    end
  end
  write_changed(entries, now)
end
