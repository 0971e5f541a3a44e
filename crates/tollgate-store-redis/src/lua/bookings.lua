-- Bookings: a list of {slot, charge}, the latest first.

local function total(bookings)
  local sum = 0
  for _, booking in ipairs(bookings) do
    sum = add(sum, booking[2])
  end
  return sum
end

-- Ends bookings of which `used` was used: each is told what of it goes back, the latest first.
-- Returns what was used beyond them all.
local function give_back(bookings, used, finish)
  local booked = total(bookings)
  local unused = sub(booked, used)
  for _, booking in ipairs(bookings) do
    local back = min(unused, booking[2])
    unused = unused - back
    finish(booking[1], booking[2], back)
  end
  return sub(used, booked)
end
