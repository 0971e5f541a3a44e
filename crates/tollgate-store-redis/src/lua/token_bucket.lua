-- The token bucket: a burst up to the limit at once, then as much in a window as the limit.
--
-- The level is in units * milliseconds and kept as two numbers, units and the rest below one (less than
-- the window W): so it stays exact however deep a debt is. It drains by `limit` in each millisecond.

local function TokenBucket()
  local Rule, Recent = { is_rate = true }, Ring(8, 9)
  -- Its square is exact.
  local WINDOW_MS_MAX = 94906265

  local function counter_of(param, units, rest, at, empty_at, recent)
    return {
      code = 't', rule = Rule, param = param, units = units, rest = rest, at = at, empty_at = empty_at,
      recent = recent,
    }
  end

  function Rule.new(param, now)
    return counter_of(param, 0, 0, now, now, Recent.new(Recent.part(param, now)))
  end

  function Rule.restored(param, fields)
    local units, rest, at = exact_numbers(3, string.sub(fields, 1, 24))
    local recent = Recent.restored(string.sub(fields, 33))
    if not units or not recent or param > WINDOW_MS_MAX or rest >= max(param, 1) then
      return
    end
    -- A sum of two exact numbers.
    local empty_at = parse('<L', fields, 25)
    if empty_at >= at and empty_at <= at + EXACT_MAX then
      return counter_of(param, units, rest, at, empty_at, recent)
    end
  end

  function Rule.stored(counter)
    return pack('<llll', counter.units, counter.rest, counter.at, counter.empty_at) .. Recent.stored(counter.recent)
  end

  function Rule.kept_ms(counter, now)
    return 2 * counter.param + sub(counter.empty_at, now)
  end

  local function level(counter, limit, now)
    local window_ms = max(counter.param, 1)
    local passed_ms = sub(now, counter.at)
    local drained, rest = share(limit, passed_ms % window_ms, window_ms)
    -- Above 2^53 this is not exact, and above any level.
    drained = drained + limit * floor(passed_ms / window_ms)
    local units, left = counter.units - drained, counter.rest - rest
    if left < 0 then
      units, left = units - 1, left + window_ms
    end
    if units < 0 then
      return 0, 0
    end
    return units, left
  end

  -- How long a level takes to drain. Under a limit of zero, where no level matters, a window.
  local function drained_in(counter, limit, units, rest)
    if limit == 0 then
      return counter.param
    end
    local window_ms = max(counter.param, 1)
    local over = units % limit
    return min((units - over) / limit * window_ms + ceil((over * window_ms + rest) / limit), EXACT_MAX)
  end

  local function set_level(counter, limit, units, rest)
    counter.units, counter.rest = units, rest
    counter.empty_at = counter.at + drained_in(counter, limit, units, rest)
  end

  local function drain(counter, limit, now)
    local units, rest = level(counter, limit, now)
    Recent.roll_to(counter.recent, Recent.part(counter.param, now))
    counter.at = max(counter.at, now)
    set_level(counter, limit, units, rest)
  end

  local function add_units(counter, limit, units)
    set_level(counter, limit, add(counter.units, units), counter.rest)
  end

  -- Takes from the level what a booking did not use, as far as it has not drained: never below what was
  -- charged since the part of the reservation.
  local function take_back(counter, limit, slot, charge, back)
    if Recent.is_forgotten(counter.recent, slot) then
      return
    end
    Recent.settle(counter.recent, slot, charge, back)
    local later = sub(Recent.used_since(counter.recent, slot), charge - back)
    if later > counter.units then
      return set_level(counter, limit, counter.units, counter.rest)
    end
    if counter.units - back >= later then
      return set_level(counter, limit, counter.units - back, counter.rest)
    end
    set_level(counter, limit, later, 0)
  end

  local function used(counter, limit, now)
    local units, rest = level(counter, limit, now)
    return rest > 0 and add(units, 1) or units
  end

  function Rule.when(counter, limit, charge, now)
    if charge > limit then
      return NEVER
    end
    local units, rest = level(counter, limit, now)
    units = units - (limit - charge)
    if units < 0 then
      units, rest = 0, 0
    end
    -- A clock that was set back has yet to come to the moment of the level.
    return sub(max(counter.at, now) + drained_in(counter, limit, units, rest), now)
  end

  function Rule.tally(counter, limit, now)
    local all = used(counter, limit, now)
    local _, held = Recent.sums_at(counter.recent, Recent.part(counter.param, now))
    held = min(held, all)
    return all - held, 0, held
  end

  function Rule.remaining(counter, limit, now)
    return sub(limit, used(counter, limit, now))
  end

  -- When the bucket has room for all of its limit again.
  function Rule.resets_at(counter, limit, now)
    local units, rest = level(counter, limit, now)
    local in_ms = (units > 0 or rest > 0) and drained_in(counter, limit, units, rest) or 0
    return max(counter.at, now) + in_ms
  end

  function Rule.can_extend()
    return true
  end

  function Rule.book(counter, limit, charge, now)
    drain(counter, limit, now)
    local latest = counter.recent.latest
    Recent.add(counter.recent, latest, charge, charge)
    add_units(counter, limit, charge)
    return latest
  end

  function Rule.settle(counter, limit, bookings, units, millionths, now)
    drain(counter, limit, now)
    local beyond = give_back(bookings, rounded_up(units, millionths), function(slot, charge, back)
      take_back(counter, limit, slot, charge, back)
    end)
    Recent.add(counter.recent, counter.recent.latest, beyond, 0)
    add_units(counter, limit, beyond)
  end

  function Rule.record(counter, limit, at, units, millionths)
    drain(counter, limit, at)
    local part = Recent.part(counter.param, at)
    if not Recent.is_forgotten(counter.recent, part) then
      local more = rounded_up(units, millionths)
      Recent.add(counter.recent, part, more, 0)
      add_units(counter, limit, more)
    end
  end

  return Rule
end
