-- The first moment after a calendar period of this number; nil for the one without end. It stands before all layers,
-- for the quick ways too.
--
-- Months as in Howard Hinnant's days_from_civil (https://howardhinnant.github.io/date_algorithms.html).

local function period_end(period, number)
  local following = number + 1
  if period == 0 then
    return following * 60000
  elseif period == 1 then
    return following * 3600000
  elseif period == 2 then
    return following * 86400000
  elseif period == 3 then
    -- 1970-01-01 was a Thursday: its week began three days earlier.
    return (following * 7 - 3) * 86400000
  elseif period == 4 then
    -- Years begin with March, month 2 of one that starts in January.
    local months = (following - 2) % 12
    local year, days = (following - 2 - months) / 12, 153 * months + 2
    return (365 * year + (year - year % 4) / 4 - (year - year % 100) / 100 + (year - year % 400) / 400
      + (days - days % 5) / 5 - 719468) * 86400000
  end
end
