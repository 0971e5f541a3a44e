-- Whole numbers in doubles: exact from 0 to 2^53 - 1, where sums stop and differences stop at 0.
-- Quotients of such numbers, rounded down or up, are exact too: a double is nearer to the true quotient
-- than that is to the next whole number.

local EXACT_MAX = 9007199254740991
local MILLIONTHS = 1000000
local NEVER = -1

local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local format = string.format

-- Numbers are stored, and come with a call, as 8 bytes each: `l` of these formats, least significant byte first.
local pack, parse = struct.pack, struct.unpack

local function has(flags, flag)
  return string.find(flags, flag, 1, true) ~= nil
end

-- Never tostring(): it writes 1e+14. A number of a 64-bit server's `%d` is exact.
local function text(number)
  return format('%d', number)
end

local function add(one, other)
  return min(one + other, EXACT_MAX)
end

local function sub(one, other)
  return max(one - other, 0)
end

-- count * part / whole rounded down, and what that leaves of whole. Exact for part <= whole < 94,906,265,
-- whose square is below 2^53: neither product is larger than count or that square.
local function share(count, part, whole)
  local rest = count % whole
  local product = rest * part
  return (count - rest) / whole * part + floor(product / whole), product % whole
end

local function share_up(count, part, whole)
  local down, rest = share(count, part, whole)
  return rest > 0 and down + 1 or down
end

-- The numbers of a list, in order.
local function numbers_in(list)
  local numbers = {}
  for place = 1, #list / 8 do
    numbers[place] = parse('<l', list, 8 * place - 7)
  end
  return numbers
end

-- The numbers that `fields` is made of, or nothing where it is not that many or they are not exact. Read without a sign, a
-- negative one is too large.
local function exact_numbers(count, fields)
  if #fields ~= 8 * count then
    return
  end
  local numbers = { parse('<' .. string.rep('L', count), fields) }
  if max(unpack(numbers, 1, count)) <= EXACT_MAX then
    return unpack(numbers, 1, count)
  end
end

local function list_of(numbers)
  return pack('<' .. string.rep('l', #numbers), unpack(numbers))
end

-- Exact amounts are two numbers: units, and millionths below one unit.
local function exact_add(units, millionths, more, more_millionths)
  millionths = millionths + more_millionths
  if millionths >= MILLIONTHS then
    return add(add(units, more), 1), millionths - MILLIONTHS
  end
  return add(units, more), millionths
end

local function exact_sub(units, millionths, less, less_millionths)
  units, millionths = units - less, millionths - less_millionths
  if millionths < 0 then
    units, millionths = units - 1, millionths + MILLIONTHS
  end
  if units < 0 then
    return 0, 0
  end
  return units, millionths
end

local function rounded_up(units, millionths)
  return millionths > 0 and add(units, 1) or units
end

-- Whether a / b < c / d, for b and d above 0, by the whole parts first and by the rest's inverse then: the
-- products would not be exact. The rests shrink as in Euclid's algorithm.
local function is_smaller_fraction(a, b, c, d)
  while true do
    local left, right = floor(a / b), floor(c / d)
    if left ~= right then
      return left < right
    end
    local left_rest, right_rest = a % b, c % d
    if right_rest == 0 then
      return false
    end
    if left_rest == 0 then
      return true
    end
    a, b, c, d = d, right_rest, b, left_rest
  end
end
