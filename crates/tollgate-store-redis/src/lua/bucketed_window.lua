-- The bucketed window: 60 buckets a window, the last 61 counted whole.

local function BucketedWindow()
  local COUNTED = 61
  local Rule, Buckets = { is_rate = true }, Ring(60, COUNTED)

  function Rule.new(param, now)
    return { code = 'b', rule = Rule, param = param, buckets = Buckets.new(Buckets.part(param, now)) }
  end

  function Rule.restored(param, fields)
    local buckets = Buckets.restored(fields)
    if buckets and Buckets.start(param, buckets.latest + COUNTED) <= EXACT_MAX then
      return { code = 'b', rule = Rule, param = param, buckets = buckets }
    end
  end

  function Rule.stored(counter)
    return Buckets.stored(counter.buckets)
  end

  function Rule.kept_ms(counter)
    return 3 * counter.param
  end

  local function used(counter, now)
    return (Buckets.sums_at(counter.buckets, Buckets.part(counter.param, now)))
  end

  local function roll_to(counter, at)
    Buckets.roll_to(counter.buckets, Buckets.part(counter.param, at))
  end

  function Rule.when(counter, limit, charge, now)
    if charge > limit then
      return NEVER
    end
    return sub(Buckets.start(counter.param, Buckets.first_within(counter.buckets, limit - charge)), now)
  end

  function Rule.tally(counter, _, now)
    local all, held = Buckets.sums_at(counter.buckets, Buckets.part(counter.param, now))
    return sub(all, held), 0, min(held, all)
  end

  function Rule.remaining(counter, limit, now)
    return sub(limit, used(counter, now))
  end

  -- When nothing counts any more that counts now.
  function Rule.resets_at(counter, _, now)
    local last = Buckets.last_used(counter.buckets)
    return last and max(Buckets.start(counter.param, last + COUNTED), now) or now
  end

  function Rule.can_extend()
    return true
  end

  function Rule.book(counter, _, charge, now)
    roll_to(counter, now)
    Buckets.add(counter.buckets, counter.buckets.latest, charge, charge)
    return counter.buckets.latest
  end

  function Rule.settle(counter, _, bookings, units, millionths, now)
    local beyond = give_back(bookings, rounded_up(units, millionths), function(slot, charge, back)
      Buckets.settle(counter.buckets, slot, charge, back)
    end)
    if beyond > 0 then
      roll_to(counter, now)
      Buckets.add(counter.buckets, counter.buckets.latest, beyond, 0)
    end
  end

  function Rule.record(counter, _, at, units, millionths)
    roll_to(counter, at)
    Buckets.add(counter.buckets, Buckets.part(counter.param, at), rounded_up(units, millionths), 0)
  end

  return Rule
end
