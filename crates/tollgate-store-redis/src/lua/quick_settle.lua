-- What most settlements need, without a function of its own: the reservation is held and was never extended, and each
-- counter exists and counts by its limit's rule. Anything else is left to the rules in their files, which this repeats
-- as quick_reserve does. It writes nothing before it is through: what a window, a period or what is open began with
-- stays, and all behind it is written over; what begins anew, and what lives on from now, as a whole.

local quick_values
do
  local floor, max, format, cut = math.floor, math.max, string.format, string.sub
  -- One text: what settle.lua says.
  local pack, parse, call, asked, keys = struct.pack, struct.unpack, redis.call, ARGV[1], KEYS
  local values = call('MGET', keys[1], unpack(keys, 3))
  quick_values = values
  local record, count = values[1], #keys - 2
  local plan_from = 33 + 16 * count
  local most = 9007199254740991
  local fits, answer, places, slots_from = false, nil, nil, nil
  if record then
    local state, fingerprint, _, made
    state, fingerprint, answer, places, slots_from = parse('<c1c16I4c0I4c0', record)
    if state == 'H' and fingerprint == cut(asked, 1, 16) then
      _, made, slots_from = parse('<ll', record, slots_from)
      fits = made == 0
    end
  end
  local now = parse('<l', asked, 25)
  if now == 0 then
    local time = call('TIME')
    now = time[1] * 1000 + floor(time[2] / 1000)
  end

  -- As large as they usually become.
  local stored = { false, false, false, false, false, false, false, false }
  local kept
  local place = 0
  while fits and place < count do
    local code, param, _, _, charge = parse('<c1llBl', asked, 26 * place + plan_from)
    local units, millionths = parse('<ll', asked, 16 * place + 33)
    local slot = parse('<l', record, slots_from + 8 * place)
    place = place + 1
    local value = values[place + 1]
    local is, length, a, b, c, used, held
    local size = value and #value
    if size == 49 or (code == 'b' and value and size > 49 and (size - 49) % 24 == 0) then
      is, length, a, b, c, used, held = parse('<c1LLLLLL', value)
    end
    -- How long a counter is kept that is written as a whole.
    local kept_ms
    if code == 'p' then
      fits = not value
    elseif is ~= code or length ~= param or a + c + used + held > most or b > most then
      fits = false
    elseif code == 'w' then
      local window_ms = param == 0 and 1 or param
      local whole = millionths > 0 and units + 1 or units
      local back, beyond = charge - whole, 0
      if back < 0 then
        back, beyond = 0, -back
      end
      fits = (a + 1) * window_ms <= most
      if slot == a then
        used, held = used - back, held - charge
        used, held = used < 0 and 0 or used, held < 0 and 0 or held
      elseif slot == a - 1 then
        b, c = max(b - back, 0), max(c - charge, 0)
      end
      local current = beyond > 0 and floor(now / window_ms) or a
      if current > a then
        if current == a + 1 then
          b, c = used, held
        else
          b, c = 0, 0
        end
        a, used, held, kept_ms = current, 0, 0, 3 * param + 60000
      end
      used = used + beyond
    elseif code == 'b' then
      -- Of parts that are over the rules know.
      local whole = millionths > 0 and units + 1 or units
      local window_ms = param == 0 and 1 or param
      fits = slot == a and (whole <= charge or floor(now * 60 / window_ms) <= a) and (a + 61) * window_ms / 60 <= most
        and (size > 49) == (b + c > 0)
      used, held = max(used - max(charge - whole, 0), 0) + max(whole - charge, 0), max(held - charge, 0)
    elseif code == 'c' or code == 'i' then
      -- Of a period or session that is over nothing changes, and the rules know how long it is kept.
      if code == 'c' then
        fits = slot == a and b == (period_end(param, a) or a == 0 and most) and c < 1000000
      else
        fits = slot == a and now < b and b > a and c < 1000000
      end
      used, c, held = used - charge, c + millionths, held - charge
      held = held < 0 and 0 or held
      if used < 0 then
        used, c = 0, millionths
      end
      used = used + units
      if c >= 1000000 then
        used, c = used + 1, c - 1000000
        fits = fits and c < 1000000
      end
      if code == 'i' then
        b = max(b, now + max(param, 1))
        kept_ms = b - now + 60000
      end
    elseif code == 'o' then
      -- Of a place that was given back the rules know.
      fits = places ~= '-' and used == held and b == 0 and c == 0
      used = max(used - charge, 0)
      held = used
    else
      fits = false
    end

    if code == 'p' then
      -- Nothing is counted.
    elseif not fits or used > most or held > most then
      fits = false
    elseif kept_ms then
      kept = kept or {}
      stored[place], kept[place] = pack('<c1llllll', code, param, a, b, c, used, held), format('%d', kept_ms)
    else
      stored[place] = pack('<llll', b, c, used, held)
    end
  end

  if fits then
    for number = 1, count do
      if not stored[number] then
        -- The size of a request.
      elseif kept and kept[number] then
        call('SET', keys[number + 2], stored[number], 'PX', kept[number])
      else
        call('SETRANGE', keys[number + 2], '17', stored[number])
      end
    end
    local ended = pack('<c1c16I4c0I4c0', 'E', asked, #answer, answer, 0, cut(asked, 33, plan_from - 1))
    call('SET', keys[1], ended, 'PX', '600000')
    return 'S applied'
  end
end

