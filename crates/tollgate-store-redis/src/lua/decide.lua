-- The decision over a plan: all of it fits, or who refuses and for how long.
--
-- Answers are texts: "A <at> <over soft> <tightest>" and "R <binding> <tightest>;<refusals>", where a tightest
-- rate limit is "<index> <remaining> <resets in>" or "-", and a refusal is
-- "<index> <outcome> <spent> <held> <needed> <resets at>". That a part of a plan is admitted has a second line: the
-- tightest rate limit without this charge, for a refusal by another part.

local function standing(tightest, now)
  if not tightest then
    return '-'
  end
  local entry = tightest.entry
  local resets_in = sub(entry.rule.resets_at(entry.counter, entry.limit, now), now)
  return format('%d %d %d', entry.index, tightest.remaining, resets_in)
end

-- Of two rate limits the one with the smaller part left, where nothing of nothing is 0.
local function tighter(tightest, entry, remaining)
  if not entry.rule.is_rate then
    return tightest
  end
  if tightest
    and not is_smaller_fraction(remaining, max(entry.limit, 1), tightest.remaining, max(tightest.entry.limit, 1))
  then
    return tightest
  end
  return { entry = entry, remaining = remaining }
end

-- How hard an entry refuses: for ever, for a time, or until open reservations end.
local function severity(entry, refusal)
  if not entry.rule.is_rate and add(refusal.spent, refusal.needed) <= entry.limit then
    return 1, 0
  elseif refusal.outcome == NEVER then
    return 3, 0
  end
  return 2, refusal.outcome
end

local function refusal_of(entry, needed, now)
  local counter, limit = entry.counter, entry.limit
  local units, millionths, held = entry.rule.tally(counter, limit, now)
  return {
    outcome = entry.rule.when(counter, limit, needed, now), spent = rounded_up(units, millionths), held = held,
    needed = needed, resets_at = entry.rule.resets_at(counter, limit, now),
  }
end

local function refuse(entries, now)
  local refusals, tightest, binding, hardest, longest = {}, nil, nil, 0, 0
  for _, entry in ipairs(entries) do
    local remaining = entry.ask and entry.rule.remaining(entry.counter, entry.limit, now)
    tightest = entry.ask and tighter(tightest, entry, remaining) or tightest
    if entry.ask and entry.is_hard and entry.ask > 0 and entry.ask > remaining then
      local refusal = refusal_of(entry, entry.ask, now)
      local class, wait = severity(entry, refusal)
      if class > hardest or (class == hardest and wait > longest) then
        binding, hardest, longest = entry.index, class, wait
      end
      refusals[#refusals + 1] = format('%d %d %d %d %d %s', entry.index, refusal.outcome,
        refusal.spent, refusal.held, refusal.needed, refusal.resets_at and text(refusal.resets_at) or '-')
    end
  end
  return format('R %d %s;%s', binding, standing(tightest, now), table.concat(refusals, ';'))
end

-- The answer, and whether it admits. Soft entries never refuse, and those of which nothing is asked (`ask` is
-- false) are left out.
local function decide(entries, now, is_split)
  local over_soft, tightest, before = {}, nil, nil
  for _, entry in ipairs(entries) do
    if entry.ask then
      local remaining = entry.rule.remaining(entry.counter, entry.limit, now)
      if entry.ask > 0 and entry.ask > remaining then
        if entry.is_hard then
          return refuse(entries, now), false
        end
        over_soft[#over_soft + 1] = text(entry.index)
      end
      before = is_split and tighter(before, entry, remaining)
      tightest = tighter(tightest, entry, sub(remaining, entry.ask))
    end
  end
  local over = #over_soft > 0 and table.concat(over_soft, ',') or '-'
  local answer = format('A %d %s %s', now, over, standing(tightest, now))
  return is_split and answer .. '\n' .. standing(before, now) or answer, true
end
