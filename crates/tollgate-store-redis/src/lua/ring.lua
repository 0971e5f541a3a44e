-- Counts of the latest parts of time, for windows that are cut into parts.
--
-- Part floor(t * P / W) is that of t ms. A ring is {latest = part, used = {[part] = n}, held = {[part] = n}},
-- without parts of nothing.

local function Ring(parts_of_window, kept)
  local Parts = {}
  local LATEST_BYTES, PART_BYTES = 40, 24

  function Parts.part(window, at)
    return floor(at * parts_of_window / max(window, 1))
  end

  -- The first millisecond of a part.
  function Parts.start(window, part)
    return ceil(part * max(window, 1) / parts_of_window)
  end

  function Parts.new(latest)
    return { latest = latest, used = {}, held = {} }
  end

  -- The number of the latest part, used and held of all before it, of it, and by age of each before it. Nothing where
  -- that is not what `fields` says.
  function Parts.restored(fields)
    local latest, before, held_before, used, held = exact_numbers(5, string.sub(fields, 1, LATEST_BYTES))
    if not latest or (#fields - LATEST_BYTES) % PART_BYTES ~= 0 then
      return
    end
    local ring, oldest, sum, held_sum = Parts.new(latest), 0, 0, 0
    ring.used[latest], ring.held[latest] = used, held
    for from = LATEST_BYTES + 1, #fields, PART_BYTES do
      local age
      age, used, held = parse('<LLL', fields, from)
      if age <= oldest or age >= kept or max(used, held) > EXACT_MAX or max(used, held) == 0 then
        return
      end
      ring.used[latest - age], ring.held[latest - age] = used, held
      oldest, sum, held_sum = age, add(sum, used), add(held_sum, held)
    end
    return sum == before and held_sum == held_before and ring
  end

  function Parts.stored(ring)
    local latest, before, held_before = ring.latest, 0, 0
    local fields = { latest, 0, 0, ring.used[latest] or 0, ring.held[latest] or 0 }
    for age = 1, kept - 1 do
      local used, held = ring.used[latest - age] or 0, ring.held[latest - age] or 0
      if used > 0 or held > 0 then
        local count = #fields
        fields[count + 1], fields[count + 2], fields[count + 3] = age, used, held
        before, held_before = add(before, used), add(held_before, held)
      end
    end
    fields[2], fields[3] = before, held_before
    return list_of(fields)
  end

  function Parts.is_forgotten(ring, part)
    return part > ring.latest or ring.latest - part >= kept
  end

  function Parts.roll_to(ring, part)
    if part <= ring.latest then
      return
    end
    ring.latest = part
    for old in pairs(ring.used) do
      if Parts.is_forgotten(ring, old) then
        ring.used[old] = nil
      end
    end
    for old in pairs(ring.held) do
      if Parts.is_forgotten(ring, old) then
        ring.held[old] = nil
      end
    end
  end

  function Parts.add(ring, part, used, held)
    if not Parts.is_forgotten(ring, part) then
      ring.used[part] = add(ring.used[part] or 0, used)
      ring.held[part] = add(ring.held[part] or 0, held)
    end
  end

  -- Ends a booking of which `unused` was not needed.
  function Parts.settle(ring, part, booked, unused)
    if not Parts.is_forgotten(ring, part) then
      ring.used[part] = sub(ring.used[part] or 0, unused)
      ring.held[part] = sub(ring.held[part] or 0, booked)
    end
  end

  -- What is used and held in all when `part`, or a later one, is the latest.
  function Parts.sums_at(ring, part)
    local latest, used, held = max(part, ring.latest), 0, 0
    for age = latest - ring.latest, kept - 1 do
      used = add(used, ring.used[latest - age] or 0)
      held = add(held, ring.held[latest - age] or 0)
    end
    return used, held
  end

  function Parts.used_since(ring, part)
    local used = 0
    for number = max(part, ring.latest - kept + 1), ring.latest do
      used = add(used, ring.used[number] or 0)
    end
    return used
  end

  -- The first part at which no more than `room` is used in all, if nothing else comes.
  function Parts.first_within(ring, room)
    local used = Parts.sums_at(ring, ring.latest)
    for part = max(ring.latest - kept + 1, 0), ring.latest do
      if used <= room then
        return part + kept - 1
      end
      used = used - (ring.used[part] or 0)
    end
    return ring.latest + kept
  end

  -- The latest part in which something is used, or nil.
  function Parts.last_used(ring)
    for age = 0, kept - 1 do
      if (ring.used[ring.latest - age] or 0) > 0 then
        return ring.latest - age
      end
    end
  end

  return Parts
end
