-- The time is the server's: all copies share one clock. Tests bring their own.

local function now_ms(given)
  if given ~= '' and given ~= 0 then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end
