-- What was spent, to the millionth of a unit, with what open reservations hold of it: the fields `units`,
-- `millionths` and `held` of a counter.

local function spend_reset(counter)
  counter.units, counter.millionths, counter.held = 0, 0, 0
end

local function spend_tally(counter)
  local units, millionths = exact_sub(counter.units, counter.millionths, counter.held, 0)
  return units, millionths, counter.held
end

local function spend_remaining(counter, limit)
  return sub(limit, rounded_up(counter.units, counter.millionths))
end

local function spend_book(counter, charge)
  counter.units, counter.held = add(counter.units, charge), add(counter.held, charge)
end

local function spend_add(counter, units, millionths)
  counter.units, counter.millionths = exact_add(counter.units, counter.millionths, units, millionths)
end

-- Replaces all bookings of one reservation by what was used.
local function spend_settle(counter, bookings, units, millionths)
  local booked = total(bookings)
  counter.held = sub(counter.held, booked)
  counter.units, counter.millionths = exact_sub(counter.units, counter.millionths, booked, 0)
  spend_add(counter, units, millionths)
end
