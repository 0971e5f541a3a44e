-- What most reserves need, without a function or a table of its own: each counter exists and counts by its limit's
-- rule, and all of the plan fits. Anything else is left to the rules in their files, which this repeats for sliding
-- windows, calendar periods, sessions, what is open, and the size of a request. It writes nothing before it is
-- through. Made anew at each call, the functions of the rules cost more than the decision itself.

local quick_values
if ARGV[3] == '' or ARGV[3] == 'g' then
  local floor, ceil, max, abs, format = math.floor, math.ceil, math.max, math.abs, string.format
  local match, tonumber, call, argv, keys = string.match, tonumber, redis.call, ARGV, KEYS
  local values = call('MGET', unpack(keys))
  quick_values = values
  local fits = not values[1] and (argv[3] == '' or values[#keys])
  local now
  if argv[1] == '' then
    local time = call('TIME')
    now = time[1] * 1000 + floor(time[2] / 1000)
  else
    now = tonumber(argv[1])
  end

  local count = (#argv - 3) / 5
  -- As large as they usually become.
  local stored = { false, false, false, false, false, false, false, false }
  local kept = { false, false, false, false, false, false, false, false }
  local slots = { false, false, false, false, false, false, false, false }
  local kept_param, kept_text
  local least, least_limit, least_answer = nil, nil, '-'
  local place = 0
  while fits and place < count do
    local from = 5 * place + 4
    place = place + 1
    local code, param, limit, charge = argv[from], argv[from + 1], tonumber(argv[from + 2]), tonumber(argv[from + 4])
    local value = values[place + 1]
    fits = false
    if code == 'p' then
      fits = not value and charge <= limit
      slots[place] = '0'
    elseif not value then
      -- A counter's first use.
    elseif code == 'w' then
      local head, length, index, prev, cur, cur_held = match(value, '^(w(%d+) (%d+) (%d+) %d+) (%d+) (%d+)$')
      if length == param then
        local window_ms, parts, slot = max(param, 1), 60000, index
        local current = (now - now % window_ms) / window_ms
        if current == index + 0 then
          index = current
        elseif current > index + 0 then
          slot = format('%d', current)
          head = current == index + 1 and cur .. ' ' .. cur_held or '0 0'
          head, prev = format('w%s %s %s', param, slot, head), current == index + 1 and cur or 0
          index, cur, cur_held = current, 0, 0
        end
        local left = max(now - index * window_ms, 0)
        if window_ms > parts then
          left = max(parts - floor(left * parts / window_ms), 0)
        else
          parts = window_ms
          left = max(parts - left, 0)
        end
        local rest = prev % parts
        local remaining = limit - cur - (prev - rest) / parts * left - ceil(rest * left / parts) - charge
        fits = remaining >= 0
        stored[place] = format('%s %d %d', head, cur + charge, cur_held + charge)
        if param ~= kept_param then
          kept_param, kept_text = param, format('%d', 3 * param + 60000)
        end
        kept[place], slots[place] = kept_text, slot
        fits = fits and cur_held + charge <= 9007199254740991
        -- Of two the one with the smaller part left. Where quotients are too near and products not exact, the rules
        -- find out.
        local whole = max(limit, 1)
        local part = remaining / whole
        local is_less = not least or part < least / least_limit
        if least and abs(part - least / least_limit) < 1e-12 then
          local one, other = remaining * least_limit, least * whole
          is_less = one < other
          fits = fits and one < 9e15 and other < 9e15
        end
        if is_less then
          least, least_limit = remaining, whole
          least_answer = format('%d %d %d', place - 1, remaining, max((index + 1) * window_ms - now, 0))
        end
      end
    elseif code == 'c' then
      local head, period, index, units, millionths, held = match(value, '^(c(%d) (%d+)) (%d+) (%d+) (%d+)$')
      if period == param then
        local current, over_ms
        if period == '4' then
          local day = (now - now % 86400000) / 86400000 + 719468
          local of_era = day % 146097
          local year = of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)
          year = (year - year % 365) / 365
          local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))
          current = ((day - of_era) / 146097 * 400 + year) * 12 + floor((5 * of_year + 2) / 153) + 2
          local since_march = max(current, index) - 1
          local months = since_march % 12
          year = (since_march - months) / 12
          of_era = year % 400
          over_ms = ((year - of_era) / 400 * 146097 + of_era * 365 + floor(of_era / 4) - floor(of_era / 100)
            + floor((months * 153 + 2) / 5) - 719468) * 86400000
        elseif period == '5' then
          current = 0
        elseif period == '3' then
          current = floor((floor(now / 86400000) + 3) / 7)
          over_ms = max((max(current, index) + 1) * 7 - 3, 0) * 86400000
        else
          local length_ms = period == '0' and 60000 or period == '1' and 3600000 or 86400000
          current = (now - now % length_ms) / length_ms
          over_ms = (max(current, index) + 1) * length_ms
        end
        if current > index + 0 then
          index = format('%d', current)
          head, units, millionths, held = format('c%s %s', period, index), 0, '0', 0
        end
        fits = units + charge + (millionths == '0' and 0 or 1) <= limit and held + charge <= 9007199254740991
        stored[place] = format('%s %d %s %d', head, units + charge, millionths, held + charge)
        kept[place] = over_ms and format('%d', 86460000 + max(over_ms - now, 0)) or '316224060000'
        slots[place] = index
      end
    elseif code == 'i' then
      local after, began, until_ms, units, millionths, held =
        match(value, '^i(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
      if after == param and now < until_ms + 0 then
        units, held = units + charge, held + charge
        fits = units + (millionths == '0' and 0 or 1) <= limit and held <= 9007199254740991
        until_ms = max(until_ms, max(now, began) + max(after, 1))
        stored[place] = format('i%s %s %d %d %s %d', after, began, until_ms, units, millionths, held)
        fits = fits and until_ms - now < 4e15 - 60000
        kept[place], slots[place] = format('%d', until_ms - now + 60000), began
      end
    elseif code == 'o' then
      local open = match(value, '^o0 (%d+)$')
      if open then
        open = open + charge
        fits = open <= limit
        stored[place], kept[place], slots[place] = format('o0 %d', open), '86460000', '0'
      end
    end
    fits = fits and charge <= limit
  end

  if fits then
    local answer = format('A %d - %s', now, least_answer)
    local record = 'H|' .. argv[2] .. '|' .. answer .. '|0 0'
    if count > 0 then
      record = record .. ' ' .. table.concat(slots, ' ', 1, count)
    end
    for number = 1, count do
      if stored[number] then
        call('SET', keys[number + 1], stored[number], 'PX', kept[number])
      end
    end
    call('SET', keys[1], record, 'PX', '86400000')
    return answer
  end
end

