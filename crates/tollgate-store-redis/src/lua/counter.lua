-- Counters as they are stored, and the entries of a plan with theirs.
--
-- A counter is a string: a letter for its rule, the rule's length or period, the fields of its state. Those that most
-- calls meet begin alike, for quick_reserve and quick_settle. It is written with its time to live in one command.

local MAKE = {
  w = SlidingWindow, b = BucketedWindow, t = TokenBucket, c = Calendar, i = Idle, e = Elapsed, o = Concurrent,
  p = PerRequest,
}
local GRACE_MS = 60000
local KEPT_MAX_MS = 4e15
local HEAD_BYTES = 9
-- An entry of a plan: the letter of its rule, the rule's length or period, the amount, 1 if it is hard, the charge.
local ENTRY, ENTRY_BYTES = '<c1llBl', 26

local rules = {}

local function rule_of(code)
  if not rules[code] then
    rules[code] = MAKE[code]()
  end
  return rules[code]
end

-- The counter, or nothing where this is none that a rule has written.
local function restored(stored)
  if #stored < HEAD_BYTES or not MAKE[string.sub(stored, 1, 1)] then
    return
  end
  local code, param = parse('<c1L', stored)
  return param <= EXACT_MAX and rule_of(code).restored(param, string.sub(stored, HEAD_BYTES + 1)) or nil
end

local function has_rule_of(counter, entry)
  return counter.code == entry.code and counter.param == entry.param
end

-- The same count under the entry's rule: what counts now counts as used now, in one piece.
local function under(counter, entry, now)
  local units, millionths, held = counter.rule.tally(counter, entry.limit, now)
  local other = entry.rule.new(entry.param, now)
  units, millionths = exact_add(units, millionths, held, 0)
  other.rule.record(other, entry.limit, now, units, millionths)
  return other
end

-- What is no text has no value for MGET, as what is not there. A limit on size has no counter, and nobody looks at its
-- key.
local function find_other_types(entries)
  local absent = {}
  for _, entry in ipairs(entries) do
    if not entry.before and entry.code ~= 'p' then
      absent[#absent + 1] = entry.key
    end
  end
  if #absent > 0 and redis.call('EXISTS', unpack(absent)) > 0 then
    for _, entry in ipairs(entries) do
      local is_absent = not entry.before and entry.code ~= 'p'
      entry.is_spoilt = entry.is_spoilt or (is_absent and redis.call('EXISTS', entry.key) == 1)
    end
  end
end

-- The entries of `plan` with their counters: `stored` as it was found or false, `counter` as it is, or would be, under
-- the limit's rule, or a new one. `ask` is what is asked of it. Then the indices of those that cannot be read, if there are
-- any: they are `spoilt`, and to be left as they are.
local function read_entries(plan, keys, values, skip, now)
  local entries, spoilt = {}, {}
  for place = 1, #plan / ENTRY_BYTES do
    local code, param, limit, is_hard, charge = parse(ENTRY, plan, ENTRY_BYTES * (place - 1) + 1)
    local value = values[skip + place]
    local entry = {
      index = place - 1, key = keys[skip + place], code = code, param = param,
      limit = limit, is_hard = is_hard == 1, charge = charge, ask = charge,
      rule = rule_of(code), stored = value and restored(value), counter = false, changed = false,
      before = value, became = value,
    }
    entry.is_spoilt = value and not entry.stored
    if not value then
      entry.counter = entry.rule.new(entry.param, now)
    elseif entry.stored then
      entry.counter = has_rule_of(entry.stored, entry) and entry.stored or under(entry.stored, entry, now)
    end
    entries[place] = entry
  end
  find_other_types(entries)
  for _, entry in ipairs(entries) do
    if entry.is_spoilt then
      spoilt[#spoilt + 1] = text(entry.index)
    end
  end
  return entries, #spoilt > 0 and table.concat(spoilt, ',')
end

-- The same, where each has to be read.
local function read_all_entries(plan, keys, values, skip, now)
  local entries, spoilt = read_entries(plan, keys, values, skip, now)
  if spoilt then
    error('CORRUPT counter')
  end
  return entries
end

local function write_counter(entry, now)
  local counter = entry.changed
  local rule = counter.rule
  if not entry.stored and rule.is_blank and rule.is_blank(counter) then
    return
  end
  local kept_ms = min(rule.kept_ms(counter, now) + GRACE_MS, KEPT_MAX_MS)
  local stored = pack('<c1l', counter.code, counter.param) .. rule.stored(counter, now)
  redis.call('SET', entry.key, stored, 'PX', kept_ms)
  entry.became = stored
end

-- Writes what has changed. Everything is computed before: a script that stops here writes nothing.
local function write_changed(entries, now)
  for _, entry in ipairs(entries) do
    if entry.changed then
      write_counter(entry, now)
    end
  end
end

-- What counters were and have become, each with its length before it: nothing for none.
local function trace(entries)
  local states = {}
  for place, entry in ipairs(entries) do
    local before, became = entry.before or '', entry.became or ''
    states[place] = pack('<I4c0I4c0', #before, before, #became, became)
  end
  return table.concat(states)
end

-- Charges a new reservation. From here on the counter counts by the limit's rule.
local function book(entry, charge, now)
  return entry.rule.book(entry.counter, entry.limit, charge, now), entry.counter
end

-- Charges more for a reservation. Where the limit's rule has changed since it was made, the rule of today
-- counts, and nothing will go back.
local function book_more(entry, charge, now)
  local counter = entry.stored or entry.counter
  if has_rule_of(counter, entry) then
    return book(entry, charge, now)
  end
  counter.rule.record(counter, entry.limit, now, charge, 0)
  return 0, counter
end

-- Replaces what was booked by what was used. Where the limit's rule has changed since, what was booked counts
-- as used, and only what was used beyond it is charged.
local function settle(entry, bookings, units, millionths, now)
  local counter = entry.stored or entry.counter
  if has_rule_of(counter, entry) then
    counter.rule.settle(counter, entry.limit, bookings, units, millionths, now)
    return counter
  end
  units, millionths = exact_sub(units, millionths, total(bookings), 0)
  if units > 0 or millionths > 0 then
    counter.rule.record(counter, entry.limit, now, units, millionths)
  end
  return counter
end
