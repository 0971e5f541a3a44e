-- What most settlements need, without a function or a table of its own: the reservation is held and was never
-- extended, and each counter exists and counts by its limit's rule. Anything else is left to the rules in their files,
-- which this repeats as quick_reserve does. It writes nothing before it is through.

local quick_values
do
  local floor, max, min, format = math.floor, math.max, math.min, string.format
  local match, tonumber, call, argv, keys = string.match, tonumber, redis.call, ARGV, KEYS
  local values = call('MGET', keys[1], unpack(keys, 3))
  quick_values = values
  local count = (#argv - 4) / 5
  local plan, answer, slots = match(values[1] or '', '^H|(%x+)|([^|]*)|0 0 ?(.*)$')
  local fits = plan == argv[2]
  local now
  if argv[1] == '' then
    local time = call('TIME')
    now = time[1] * 1000 + floor(time[2] / 1000)
  else
    now = tonumber(argv[1])
  end

  -- As large as they usually become.
  local stored = { false, false, false, false, false, false, false, false }
  local kept = { false, false, false, false, false, false, false, false }
  local next_slot, next_amount
  if fits then
    next_slot, next_amount = string.gmatch(slots, '%d+'), string.gmatch(argv[3], '(%d+) (%d+)')
  end
  local place = 0
  while fits and place < count do
    local from = 5 * place + 5
    place = place + 1
    local code, param = argv[from], argv[from + 1]
    local value = values[place + 1]
    local slot, charge = next_slot(), tonumber(argv[from + 4])
    local used, used_millionths = next_amount()
    used, used_millionths = used + 0, used_millionths + 0
    fits = false
    if code == 'p' then
      fits = not value
    elseif not value then
      -- Forgotten meanwhile.
    elseif code == 'w' then
      local length, index, prev, prev_held, cur, cur_held = match(value, '^w(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
      if length == param then
        index, prev, prev_held, cur, cur_held = index + 0, prev + 0, prev_held + 0, cur + 0, cur_held + 0
        slot = slot + 0
        local whole = used_millionths > 0 and used + 1 or used
        local back, beyond = max(charge - whole, 0), max(whole - charge, 0)
        if slot == index then
          cur_held, cur = max(cur_held - charge, 0), max(cur - back, 0)
        elseif slot == index - 1 then
          prev_held, prev = max(prev_held - charge, 0), max(prev - back, 0)
        end
        local current = floor(now / max(param, 1))
        if beyond > 0 and current > index then
          if current == index + 1 then
            prev, prev_held = cur, cur_held
          else
            prev, prev_held = 0, 0
          end
          index, cur, cur_held = current, 0, 0
        end
        cur = cur + beyond
        fits = cur <= 9007199254740991
        stored[place] = format('w%s %d %d %d %d %d', param, index, prev, prev_held, cur, cur_held)
        kept[place] = format('%d', 3 * param + 60000)
      end
    elseif code == 'c' or code == 'i' then
      -- A period's number, or when a session began and until when it lasts.
      local length, at, until_ms, units, millionths, held
      if code == 'c' then
        length, at, units, millionths, held = match(value, '^c(%d) (%d+) (%d+) (%d+) (%d+)$')
      else
        length, at, until_ms, units, millionths, held = match(value, '^i(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
        until_ms = (until_ms or 0) + 0
      end
      -- Of a period or session that is over nothing changes, and the rules know how long it is kept.
      if length == param and slot == at and (code == 'c' or now < until_ms) then
        units, millionths, held = units - charge, millionths + used_millionths, max(held - charge, 0)
        if units < 0 then
          units, millionths = 0, used_millionths
        end
        units = units + used
        if millionths >= 1000000 then
          units, millionths = units + 1, millionths - 1000000
        end
        fits = units <= 9007199254740991
        if code == 'c' then
          stored[place] = format('c%s %s %d %d %d', param, at, units, millionths, held)
          kept[place] = false
        else
          until_ms = max(until_ms, now + max(param, 1))
          stored[place] = format('i%s %s %d %d %d %d', param, at, until_ms, units, millionths, held)
          kept[place] = format('%d', min(until_ms - now + 60000, 4e15))
        end
      end
    elseif code == 'o' then
      local open = match(value, '^o0 (%d+)$')
      if open then
        fits = true
        stored[place], kept[place] = format('o0 %d', max(open - charge, 0)), '86460000'
      end
    end
  end

  if fits then
    for number = 1, count do
      if not stored[number] then
        -- Nothing is kept of the size of a request.
      elseif kept[number] then
        call('SET', keys[number + 2], stored[number], 'PX', kept[number])
      else
        -- A period's counter lives as long as it did when it was booked: its end does not move.
        call('SET', keys[number + 2], stored[number], 'KEEPTTL')
      end
    end
    call('SET', keys[1], 'E|' .. plan .. '|' .. answer .. '|' .. argv[3], 'PX', '600000')
    return 'S applied'
  end
end

