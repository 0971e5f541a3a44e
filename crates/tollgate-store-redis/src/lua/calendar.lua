-- The calendar budget: all that falls into one period in UTC, to the millionth of a unit.
--
-- Months as in Howard Hinnant's civil_from_days (https://howardhinnant.github.io/date_algorithms.html), for days from
-- 1970 on.

local function Calendar()
  local Rule = {}
  local MINUTE_MS, HOUR_MS, DAY_MS = 60000, 3600000, 86400000
  local MINUTE, HOUR, DAY, WEEK, MONTH, TOTAL = 0, 1, 2, 3, 4, 5
  local EPOCH_DAY, ERA_DAYS = 719468, 146097
  -- A budget for ever is kept so long after its last use.
  local TOTAL_KEPT_MS = 10 * 366 * DAY_MS

  -- Months from January of year 0.
  local function month_of_day(day)
    day = day + EPOCH_DAY
    local era, of_era = floor(day / ERA_DAYS), day % ERA_DAYS
    local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
    -- March is month 2 of a year that starts in January.
    return (era * 400 + year) * 12 + floor((5 * of_year + 2) / 153) + 2
  end

  local function period_index(period, at)
    if period == MINUTE then
      return floor(at / MINUTE_MS)
    elseif period == HOUR then
      return floor(at / HOUR_MS)
    elseif period == DAY then
      return floor(at / DAY_MS)
    elseif period == WEEK then
      -- 1970-01-01 was a Thursday: its week began three days earlier.
      return floor((floor(at / DAY_MS) + 3) / 7)
    elseif period == MONTH then
      return month_of_day(floor(at / DAY_MS))
    end
    return 0
  end

  local function counter_of(param, index, millionths, units, held)
    return {
      code = 'c', rule = Rule, param = param, index = index, millionths = millionths, units = units, held = held,
    }
  end

  function Rule.new(param, now)
    return counter_of(param, period_index(param, now), 0, 0, 0)
  end

  function Rule.restored(param, fields)
    local index, over, millionths, units, held = exact_numbers(5, fields)
    if index and param <= TOTAL and over == (period_end(param, index) or index == 0 and EXACT_MAX)
      and millionths < MILLIONTHS
    then
      return counter_of(param, index, millionths, units, held)
    end
  end

  function Rule.stored(counter)
    local over = period_end(counter.param, counter.index) or EXACT_MAX
    return pack('<lllll', counter.index, over, counter.millionths, counter.units, counter.held)
  end

  function Rule.kept_ms(counter, now)
    local over = period_end(counter.param, counter.index)
    return over and DAY_MS + sub(over, now) or TOTAL_KEPT_MS
  end

  local function is_over(counter, now)
    return period_index(counter.param, now) > counter.index
  end

  local function end_at(counter, now)
    return period_end(counter.param, max(counter.index, period_index(counter.param, now)))
  end

  local function roll_to(counter, index)
    if index > counter.index then
      counter.index = index
      spend_reset(counter)
    end
  end

  -- A charge that is too large for now fits in the next period.
  function Rule.when(counter, limit, charge, now)
    local over = end_at(counter, now)
    return over and charge <= limit and sub(over, now) or NEVER
  end

  function Rule.tally(counter, _, now)
    if is_over(counter, now) then
      return 0, 0, 0
    end
    return spend_tally(counter)
  end

  function Rule.remaining(counter, limit, now)
    return is_over(counter, now) and limit or spend_remaining(counter, limit)
  end

  function Rule.resets_at(counter, _, now)
    return end_at(counter, now)
  end

  function Rule.can_extend(counter, slot, now)
    return max(counter.index, period_index(counter.param, now)) == slot
  end

  function Rule.book(counter, _, charge, now)
    roll_to(counter, period_index(counter.param, now))
    spend_book(counter, charge)
    return counter.index
  end

  -- All bookings of one reservation lie in the period of its admission.
  function Rule.settle(counter, _, bookings, units, millionths)
    local slot = bookings[1][1]
    roll_to(counter, slot)
    if slot == counter.index then
      spend_settle(counter, bookings, units, millionths)
    end
  end

  function Rule.record(counter, _, at, units, millionths)
    local index = period_index(counter.param, at)
    roll_to(counter, index)
    if index == counter.index then
      spend_add(counter, units, millionths)
    end
  end

  return Rule
end
