-- The session: everything since the counter began, forgotten some time after its last use. A generation is
-- told by the moment it began.

local function Idle()
  local Rule = {}

  local function counter_of(param, began, until_ms, millionths, units, held)
    return {
      code = 'i', rule = Rule, param = param, began = began, until_ms = until_ms,
      millionths = millionths, units = units, held = held,
    }
  end

  function Rule.new(param, now)
    return counter_of(param, now, now, 0, 0, 0)
  end

  function Rule.restored(param, fields)
    local began, until_ms, millionths, units, held = exact_numbers(5, fields)
    if began and until_ms > began and millionths < MILLIONTHS then
      return counter_of(param, began, until_ms, millionths, units, held)
    end
  end

  function Rule.stored(counter)
    return pack('<lllll', counter.began, counter.until_ms, counter.millionths, counter.units, counter.held)
  end

  function Rule.kept_ms(counter, now)
    return sub(counter.until_ms, now)
  end

  function Rule.is_blank(counter)
    return counter.until_ms == counter.began
  end

  local function roll_to(counter, now)
    if now >= counter.until_ms then
      counter.began, counter.until_ms = now, now
      spend_reset(counter)
    end
  end

  local function forgotten_after(counter, at)
    return at + max(counter.param, 1)
  end

  local function touch(counter, at)
    counter.until_ms = max(counter.until_ms, forgotten_after(counter, at))
  end

  -- A charge that does not fit now fits when the session is forgotten.
  function Rule.when(counter, limit, charge, now)
    return charge <= limit and sub(counter.until_ms, now) or NEVER
  end

  function Rule.tally(counter, _, now)
    if now >= counter.until_ms then
      return 0, 0, 0
    end
    return spend_tally(counter)
  end

  function Rule.remaining(counter, limit, now)
    return now >= counter.until_ms and limit or spend_remaining(counter, limit)
  end

  function Rule.resets_at(counter, _, now)
    if now < counter.until_ms and not Rule.is_blank(counter) then
      return counter.until_ms
    end
  end

  function Rule.can_extend(counter, slot, now)
    return now < counter.until_ms and counter.began == slot
  end

  function Rule.book(counter, _, charge, now)
    roll_to(counter, now)
    spend_book(counter, charge)
    touch(counter, max(now, counter.began))
    return counter.began
  end

  function Rule.settle(counter, _, bookings, units, millionths, now)
    if bookings[1][1] ~= counter.began then
      return
    end
    spend_settle(counter, bookings, units, millionths)
    -- What is forgotten is not remembered by a late settle.
    if now < counter.until_ms then
      touch(counter, now)
    end
  end

  -- A use from before this generation began belongs to it if the session would have lasted so long.
  function Rule.record(counter, _, at, units, millionths)
    if forgotten_after(counter, at) <= counter.began then
      return
    end
    roll_to(counter, at)
    spend_add(counter, units, millionths)
    touch(counter, at)
  end

  return Rule
end
