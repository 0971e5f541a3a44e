-- The sliding window: the current window, and the part of the previous one still in sight.
--
-- A charge fits iff prev * (S - e) + (cur + charge) * S <= limit * S. Divided by S and with all whole but
-- one term, that is cur + charge + ceil(prev * (S - e) / S) <= limit: no product above prev is needed.

local function SlidingWindow()
  local Rule = { is_rate = true }
  local PARTS_MAX = 60000

  local function counter_of(param, index, prev_used, prev_held, cur_used, cur_held)
    return {
      code = 'w', rule = Rule, param = param, index = index, prev_used = prev_used, prev_held = prev_held,
      cur_used = cur_used, cur_held = cur_held,
    }
  end

  function Rule.new(param, now)
    return counter_of(param, floor(now / max(param, 1)), 0, 0, 0, 0)
  end

  function Rule.restored(param, fields)
    local index, prev_used, prev_held, cur_used, cur_held = exact_numbers(5, fields)
    if index and param * PARTS_MAX <= EXACT_MAX and (index + 1) * max(param, 1) <= EXACT_MAX then
      return counter_of(param, index, prev_used, prev_held, cur_used, cur_held)
    end
  end

  function Rule.stored(counter)
    return pack('<lllll', counter.index, counter.prev_used, counter.prev_held, counter.cur_used, counter.cur_held)
  end

  function Rule.kept_ms(counter)
    return 3 * counter.param
  end

  local function roll_to(counter, index)
    if index <= counter.index then
      return
    end
    if index == counter.index + 1 then
      counter.prev_used, counter.prev_held = counter.cur_used, counter.cur_held
    else
      counter.prev_used, counter.prev_held = 0, 0
    end
    counter.index, counter.cur_used, counter.cur_held = index, 0, 0
  end

  local function index_at(counter, at)
    return floor(at / max(counter.param, 1))
  end

  local function rolled(counter, now)
    local index = index_at(counter, now)
    if index <= counter.index then
      return counter
    end
    local later = counter_of(counter.param, counter.index, counter.prev_used, counter.prev_held, counter.cur_used,
      counter.cur_held)
    roll_to(later, index)
    return later
  end

  local function shape(state)
    local window_ms = max(state.param, 1)
    return window_ms, min(window_ms, PARTS_MAX), state.index * window_ms
  end

  -- How many parts of the current window are still to come: the weight of the previous one.
  local function parts_left(state, now)
    local window_ms, parts, start_ms = shape(state)
    local elapsed_ms = sub(now, start_ms)
    if window_ms > PARTS_MAX then
      return sub(parts, floor(elapsed_ms * PARTS_MAX / window_ms))
    end
    return sub(parts, elapsed_ms)
  end

  local function ms_after(window_ms, parts)
    if window_ms <= PARTS_MAX then
      return parts
    end
    return ceil(parts * window_ms / PARTS_MAX)
  end

  -- How many parts must pass until a previous window of `count` weighs no more than `room`.
  local function parts_until(parts, count, room)
    if count == 0 then
      return 0
    end
    return sub(parts, floor(room * parts / count))
  end

  function Rule.when(counter, limit, charge, now)
    if charge > limit then
      return NEVER
    end
    local state = rolled(counter, now)
    local window_ms, parts, start_ms = shape(state)
    local spare = limit - charge
    if spare >= state.cur_used then
      local passed = parts_until(parts, state.prev_used, spare - state.cur_used)
      if passed < parts then
        return sub(start_ms + ms_after(window_ms, passed), now)
      end
    end
    local passed = parts_until(parts, state.cur_used, spare)
    local into_ms = passed < parts and ms_after(window_ms, passed) or window_ms
    return sub(start_ms + window_ms + into_ms, now)
  end

  function Rule.tally(counter, _, now)
    local state = rolled(counter, now)
    local _, parts = shape(state)
    local left = parts_left(state, now)
    local used = add(state.cur_used, share_up(state.prev_used, left, parts))
    local settled = sub(state.prev_used, state.prev_held)
    local spent = add(sub(state.cur_used, state.cur_held), share_up(settled, left, parts))
    return spent, 0, sub(used, spent)
  end

  function Rule.remaining(counter, limit, now)
    local state = rolled(counter, now)
    local _, parts = shape(state)
    return sub(limit, add(state.cur_used, share_up(state.prev_used, parts_left(state, now), parts)))
  end

  function Rule.resets_at(counter, _, now)
    local window_ms, _, start_ms = shape(rolled(counter, now))
    return start_ms + window_ms
  end

  function Rule.can_extend()
    return true
  end

  local function add_used(counter, index, used)
    if index == counter.index then
      counter.cur_used = add(counter.cur_used, used)
    elseif index == counter.index - 1 then
      counter.prev_used = add(counter.prev_used, used)
    end
  end

  function Rule.book(counter, _, charge, now)
    roll_to(counter, index_at(counter, now))
    counter.cur_used = add(counter.cur_used, charge)
    counter.cur_held = add(counter.cur_held, charge)
    return counter.index
  end

  -- What was not used goes back to the windows it was booked in where they still count; what was used
  -- beyond is charged to the current one.
  function Rule.settle(counter, _, bookings, units, millionths, now)
    local beyond = give_back(bookings, rounded_up(units, millionths), function(slot, charge, back)
      if slot == counter.index then
        counter.cur_held, counter.cur_used = sub(counter.cur_held, charge), sub(counter.cur_used, back)
      elseif slot == counter.index - 1 then
        counter.prev_held, counter.prev_used = sub(counter.prev_held, charge), sub(counter.prev_used, back)
      end
    end)
    if beyond > 0 then
      roll_to(counter, index_at(counter, now))
      counter.cur_used = add(counter.cur_used, beyond)
    end
  end

  function Rule.record(counter, _, at, units, millionths)
    local index = index_at(counter, at)
    roll_to(counter, index)
    add_used(counter, index, rounded_up(units, millionths))
  end

  return Rule
end
