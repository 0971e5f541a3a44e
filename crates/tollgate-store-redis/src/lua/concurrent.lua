-- Concurrency: what open reservations hold, and nothing else.

local function Concurrent()
  local Rule = {}
  -- A reservation whose copy died stays open. The counter outlives its record by an hour at most: so often its time to
  -- live begins anew, at the moment that is stored with it.
  local KEPT_MS = 90000000

  function Rule.new()
    return { code = 'o', rule = Rule, param = 0, open = 0 }
  end

  function Rule.restored(param, fields)
    local since, none, nothing, open, held = exact_numbers(5, fields)
    if since and param == 0 and none == 0 and nothing == 0 and open == held then
      return { code = 'o', rule = Rule, param = 0, open = open }
    end
  end

  function Rule.stored(counter, now)
    return pack('<lllll', now, 0, 0, counter.open, counter.open)
  end

  function Rule.kept_ms()
    return KEPT_MS
  end

  function Rule.is_blank(counter)
    return counter.open == 0
  end

  function Rule.when()
    return NEVER
  end

  function Rule.tally(counter)
    return 0, 0, counter.open
  end

  function Rule.remaining(counter, limit)
    return sub(limit, counter.open)
  end

  function Rule.resets_at() end

  function Rule.can_extend()
    return true
  end

  function Rule.book(counter, _, charge)
    counter.open = add(counter.open, charge)
    return 0
  end

  function Rule.settle(counter, _, bookings)
    counter.open = sub(counter.open, total(bookings))
  end

  -- What is over is not open.
  function Rule.record() end

  return Rule
end
