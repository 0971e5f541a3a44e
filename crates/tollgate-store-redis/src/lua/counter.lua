-- Counters as they are stored, and the entries of a plan with theirs.
--
-- A counter is a string: a letter for its rule, the rule's length or period, the fields of its state. It is
-- written with its time to live in one command.

local MAKE = {
  w = SlidingWindow, b = BucketedWindow, t = TokenBucket, c = Calendar, i = Idle, e = Elapsed, o = Concurrent,
  p = PerRequest,
}
local GRACE_MS = 60000
local KEPT_MAX_MS = 4e15

local rules = {}

local function rule_of(code)
  if not rules[code] then
    rules[code] = MAKE[code]()
  end
  return rules[code]
end

local function restored(stored)
  local code, param, rest = match(stored, '^([wbtcieop])(%d+) (.*)$')
  if not code then
    error('CORRUPT counter')
  end
  return rule_of(code).restored(tonumber(param), rest)
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

-- The plan's entries, five arguments each from `first` on, with their counters: `stored` as it was found or
-- false, `counter` as it is, or would be, under the limit's rule, or a new one. `ask` is what is asked of it.
local function read_entries(first, keys, values, skip, now)
  local entries = {}
  for place = 1, (#ARGV - first + 1) / 5 do
    local from = first + 5 * (place - 1)
    local code, charge, value = ARGV[from], tonumber(ARGV[from + 4]), values[skip + place]
    local entry = {
      index = place - 1, key = keys[skip + place], code = code, param = tonumber(ARGV[from + 1]),
      limit = tonumber(ARGV[from + 2]), is_hard = ARGV[from + 3] == 'h', charge = charge, ask = charge,
      rule = rule_of(code), stored = value and restored(value), counter = false, changed = false,
      before = value, became = value,
    }
    if not value then
      entry.counter = entry.rule.new(entry.param, now)
    elseif has_rule_of(entry.stored, entry) then
      entry.counter = entry.stored
    else
      entry.counter = under(entry.stored, entry, now)
    end
    entries[place] = entry
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
  local stored = format('%s%d %s', counter.code, counter.param, rule.stored(counter))
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

-- What counters were and have become, a line each: "-" for none.
local function trace(entries)
  local lines = {}
  for place, entry in ipairs(entries) do
    lines[2 * place - 1], lines[2 * place] = entry.before or '-', entry.became or '-'
  end
  return table.concat(lines, '\n')
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
