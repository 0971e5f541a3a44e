-- Which lives of copies have ended without a word, so that their places can be given back. A copy has a life from its
-- start on, and a new one where it was taken for dead.
--
-- KEYS: the lives, a hash: of each when it was heard of last, since when somebody gives its places back or 0 for one
-- that has not ended, its copy; and since when it was not all of them that were silent. ARGV: time or nothing, a life,
-- its copy, how long a life may be silent, and what is told of it: "start" for the first of a process, which ends all
-- others of its copy; "new" for a later one; "on" for one that goes on; "gone" where its places are given back.
--
-- "N" where the life has ended, otherwise "A", "F" where one that goes on was not known, or "T" where another one of its
-- copy goes on too; how many lives there are whose places are to be given back now, by who asks, and those, then all that
-- have not ended. A number has 4 bytes, a life 8.

local CLAIM_MS, KEPT_MS = 60000, 90000000

local now, life, copy, silent_ms, told = now_ms(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local function put(name, at, claimed, of)
  redis.call('HSET', KEYS[1], name, text(at) .. ' ' .. text(claimed) .. ' ' .. of)
end

local all, others, newest, since, own = redis.call('HGETALL', KEYS[1]), {}, 0, nil, nil
for place = 1, #all, 2 do
  local name, value = all[place], all[place + 1]
  if name == 'since' then
    since = tonumber(value)
  else
    local at, claimed, of = string.match(value, '^(%d+) (%d+) (.*)$')
    local seen = { name = name, at = tonumber(at), claimed = tonumber(claimed), copy = of }
    if not at or #name ~= #life then
      -- Nobody of us has written it.
      redis.call('HDEL', KEYS[1], name)
    elseif name == life then
      own = seen
    else
      others[#others + 1] = seen
    end
    newest = max(newest, seen.at or 0)
  end
end

if told == 'gone' then
  -- Who was cut off, and comes back, has to know.
  if own then
    put(life, own.at, now + KEPT_MS, own.copy)
  end
  return 'A'
elseif own and own.claimed > 0 then
  return 'N'
end
-- Where all were silent it was not they who were away.
if not since or now - newest > silent_ms / 2 then
  since = now
  redis.call('HSET', KEYS[1], 'since', text(now))
end
put(life, now, 0, copy)
redis.call('PEXPIRE', KEYS[1], text(KEPT_MS))

local count, dead, living, is_twin = 0, '', life, false
for _, other in ipairs(others) do
  local is_replaced = told == 'start' and other.copy == copy
  local is_silent = now - since >= silent_ms and now - other.at > silent_ms
  if now - other.at > KEPT_MS then
    -- Nothing of its is left.
    redis.call('HDEL', KEYS[1], other.name)
  elseif (is_replaced or is_silent or other.claimed > 0) and now - other.claimed > CLAIM_MS then
    put(other.name, other.at, now, other.copy)
    count, dead = count + 1, dead .. other.name
  elseif other.claimed == 0 then
    living = living .. other.name
    is_twin = is_twin or other.copy == copy and now - other.at <= silent_ms
  end
end
local head = told == 'on' and not own and 'F' or is_twin and 'T' or 'A'
return pack('<c1I4', head, count) .. dead .. living
