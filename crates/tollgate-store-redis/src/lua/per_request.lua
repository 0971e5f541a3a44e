-- The largest request: a charge fits iff it is not above the limit. Nothing is counted.

local function PerRequest()
  local Rule = { is_whole_request = true }

  function Rule.new()
    return { code = 'p', rule = Rule, param = 0 }
  end

  function Rule.restored(param, fields)
    return param == 0 and fields == '' and Rule.new()
  end

  function Rule.stored()
    return ''
  end

  function Rule.kept_ms()
    return 0
  end

  function Rule.is_blank()
    return true
  end

  function Rule.when()
    return NEVER
  end

  function Rule.tally()
    return 0, 0, 0
  end

  function Rule.remaining(_, limit)
    return limit
  end

  function Rule.resets_at() end

  function Rule.can_extend()
    return true
  end

  function Rule.book()
    return 0
  end

  function Rule.settle() end

  function Rule.record() end

  return Rule
end
