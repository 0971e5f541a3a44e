-- The run: how long ago the counter was first used, forgotten some time after its last use. Limit and charge
-- are milliseconds, and nothing is added up. Generations are those of a session.

local function Elapsed()
  local Rule = {}

  -- `first` is the first use of a generation: before `began` where that came to be known later.
  local function counter_of(param, began, first, until_ms)
    return { code = 'e', rule = Rule, param = param, began = began, first = first, until_ms = until_ms }
  end

  function Rule.new(param, now)
    return counter_of(param, now, now, now)
  end

  function Rule.restored(param, fields)
    local began, first, until_ms = exact_numbers(3, fields)
    if began and first <= began and until_ms > began then
      return counter_of(param, began, first, until_ms)
    end
  end

  function Rule.stored(counter)
    return pack('<lll', counter.began, counter.first, counter.until_ms)
  end

  function Rule.kept_ms(counter, now)
    return sub(counter.until_ms, now)
  end

  function Rule.is_blank(counter)
    return counter.until_ms == counter.began
  end

  local function roll_to(counter, now)
    if now >= counter.until_ms then
      counter.began, counter.first, counter.until_ms = now, now, now
    end
  end

  local function forgotten_after(counter, at)
    return at + max(counter.param, 1)
  end

  local function touch(counter, at)
    counter.until_ms = max(counter.until_ms, forgotten_after(counter, at))
  end

  local function elapsed(counter, now)
    return now < counter.until_ms and sub(now, counter.first) or 0
  end

  -- A charge that does not fit now fits when the run is forgotten.
  function Rule.when(counter, limit, charge, now)
    return charge <= limit and sub(counter.until_ms, now) or NEVER
  end

  -- The time that has passed counts as spent.
  function Rule.tally(counter, _, now)
    return elapsed(counter, now), 0, 0
  end

  function Rule.remaining(counter, limit, now)
    return sub(limit, elapsed(counter, now))
  end

  function Rule.resets_at(counter, _, now)
    if now < counter.until_ms and not Rule.is_blank(counter) then
      return counter.until_ms
    end
  end

  function Rule.can_extend(counter, slot, now)
    return now < counter.until_ms and counter.began == slot
  end

  function Rule.book(counter, _, _, now)
    roll_to(counter, now)
    touch(counter, max(now, counter.began))
    return counter.began
  end

  -- The end of a reservation is a use, if its run is not forgotten.
  function Rule.settle(counter, _, bookings, _, _, now)
    if now < counter.until_ms and bookings[1][1] == counter.began then
      touch(counter, now)
    end
  end

  -- A use from before this generation began belongs to it if the run would have lasted so long.
  function Rule.record(counter, _, at)
    if forgotten_after(counter, at) <= counter.began then
      return
    end
    roll_to(counter, at)
    counter.first = min(counter.first, at)
    touch(counter, at)
  end

  return Rule
end
