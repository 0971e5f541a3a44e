-- What most reserves need, without a function of its own: each counter counts by its limit's rule, and all of the plan
-- fits. Anything else is left to the rules in their files, which this repeats for windows, calendar periods, sessions,
-- what is open, and the size of a request. It writes nothing before it is through. Made anew at each call, the
-- functions of the rules cost more than the decision itself.
--
-- All counters begin alike: their rule, its length or period, three numbers of the rule's own, and what is used and held
-- now. Within a window or period only these last two change, and are written over what was there: the time to live
-- stays that with which it began. What begins anew is written as a whole.

-- ARGV is one text: what reserve.lua says.

local quick_given, quick_flags = struct.unpack('<lB', ARGV[1], 25)
if #KEYS > 1 and (quick_flags == 0 or quick_flags == 4) then
  local floor, ceil, max, abs = math.floor, math.ceil, math.max, math.abs
  local format, cut = string.format, string.sub
  local pack, parse, call, asked, keys = struct.pack, struct.unpack, redis.call, ARGV[1], KEYS
  local most = 9007199254740991
  local values = call('MGET', unpack(keys, 2))
  local fits = quick_flags == 0 or values[#keys - 1]
  local now = quick_given
  if now == 0 then
    local time = call('TIME')
    now = time[1] * 1000 + floor(time[2] / 1000)
  end

  local count = (#asked - 33) / 26
  -- As large as they usually become.
  local stored = { false, false, false, false, false, false, false, false }
  local slots = { false, false, false, false, false, false, false, false }
  local absent, kept, least, least_limit, least_place, least_resets
  -- Whose places of limits on concurrency it takes, and which.
  local places = ''
  local place = 0
  while fits and place < count do
    local code, param, limit, _, charge = parse('<c1llBl', asked, 26 * place + 34)
    place = place + 1
    local value = values[place]
    local is, length, a, b, c, used, held = code, param, -1, 0, 0, 0, 0
    local size = value and #value
    if size == 49 or (code == 'b' and value and size > 49 and (size - 49) % 24 == 0) then
      -- Without a sign: what is negative is too large to be exact.
      is, length, a, b, c, used, held = parse('<c1LLLLLL', value)
    elseif value then
      is = false
    elseif code ~= 'p' then
      absent = absent or {}
      absent[#absent + 1] = keys[place + 1]
    end
    -- What is left with this charge, when a rate begins anew, how long a counter is kept that is written as a whole.
    local left, resets_at, kept_ms = -1, nil, nil
    if is ~= code or length ~= param or a + c + used + held > most or b > most then
      -- It counts by another rule, or no rule has written it. That is told as in their files, but for buckets before
      -- the latest, which nobody looks at here.
    elseif code == 'w' then
      -- The window's index, and of the one before what was used and held.
      local window_ms, parts = param == 0 and 1 or param, 60000
      local current = (now - now % window_ms) / window_ms
      if current > a then
        if current == a + 1 then
          b, c = used, held
        else
          b, c = 0, 0
        end
        a, used, held, kept_ms = current, 0, 0, 3 * param + 60000
      end
      local parts_left = now - a * window_ms
      if parts_left < 0 then
        parts_left = 0
      end
      if window_ms > parts then
        parts_left = parts - floor(parts_left * parts / window_ms)
      else
        parts = window_ms
        parts_left = parts - parts_left
      end
      if parts_left < 0 then
        parts_left = 0
      end
      local rest = b % parts
      resets_at = (a + 1) * window_ms
      if resets_at <= most then
        left = limit - used - charge - (b - rest) / parts * parts_left - ceil(rest * parts_left / parts)
      end
    elseif code == 'b' then
      -- The latest part, and of those before it what is used and held. Where it is over the rules find out the rest.
      local window_ms = param == 0 and 1 or param
      resets_at = ceil((a + 61) * window_ms / 60)
      if used > 0 and floor(now * 60 / window_ms) <= a and resets_at <= most and (size > 49) == (b + c > 0) then
        left = limit - b - used - charge
      end
    elseif code == 'c' then
      -- A period's number, when it is over, millionths.
      if now < b and b == (period_end(param, a) or a == 0 and most) and c < 1000000 then
        left = limit - used - charge - (c == 0 and 0 or 1)
        -- Without an end, it lives on from its last use.
        kept_ms = param == 5 and 316224060000
      end
    elseif code == 'i' then
      -- When the session began, until when it lasts, millionths.
      local is_readable = b > a and c < 1000000
      if now >= b then
        a, b, c, used, held = now, now, 0, 0, 0
      end
      if is_readable then
        left = limit - used - charge - (c == 0 and 0 or 1)
      end
      b = max(b, max(now, a) + max(param, 1))
      kept_ms = b - now + 60000
    elseif code == 'o' then
      -- Since when it is kept.
      if (value or charge > 0) and used == held and b == 0 and c == 0 then
        left = limit - used - charge
      end
      if now >= a + 3600000 then
        a, kept_ms = now, 90060000
      end
      if charge > 0 then
        local key = keys[place + 1]
        places = (places == '' and cut(asked, 17, 24) or places) .. pack('<lI4c0', charge, #key, key)
      end
    elseif code == 'p' then
      left = limit - charge
    end

    fits = left >= 0 and held + charge <= most
    slots[place], used, held = a < 0 and 0 or a, used + charge, held + charge
    if code == 'p' then
      -- Nothing is counted.
    elseif kept_ms then
      kept = kept or {}
      stored[place], kept[place] = pack('<c1llllll', code, param, a, b, c, used, held), format('%d', kept_ms)
    else
      stored[place] = pack('<ll', used, held)
    end
    if resets_at then
      -- Of two the one with the smaller part left. Where quotients are too near and products not exact, the rules
      -- find out.
      local whole = max(limit, 1)
      local part = left / whole
      local is_less = not least or part < least / least_limit
      if least and abs(part - least / least_limit) < 1e-12 then
        local one, other = left * least_limit, least * whole
        is_less = one < other
        fits = fits and one < 9e15 and other < 9e15
      end
      if is_less then
        least, least_limit, least_place, least_resets = left, whole, place - 1, resets_at
      end
    end
  end

  -- What MGET has passed over may be of another type.
  if fits and not (absent and call('EXISTS', unpack(absent)) > 0) then
    local answer
    if least then
      answer = format('A %d - %d %d %d', now, least_place, least, max(least_resets - now, 0))
    else
      answer = format('A %d - -', now)
    end
    local record = pack('<c1c16I4c0I4c0ll' .. string.rep('l', count), 'H', asked, #answer, answer, #places, places,
      0, 0, unpack(slots, 1, count))
    -- Where there is one already, the rules find out what it says.
    if call('SET', keys[1], record, 'NX', 'PX', '86400000') then
      for number = 1, count do
        if not stored[number] then
          -- The size of a request.
        elseif kept and kept[number] then
          call('SET', keys[number + 1], stored[number], 'PX', kept[number])
        else
          call('SETRANGE', keys[number + 1], '33', stored[number])
        end
      end
      return answer
    end
  end
end

