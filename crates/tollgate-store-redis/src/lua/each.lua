
-- Runs what is above once for each of several calls that came together.
--
-- KEYS: those of the calls, one after the other. ARGV: of each call a byte for the number of its keys and one for the
-- number of its arguments, then the arguments. An answer that begins with "!" says why that call failed; the others
-- are as they are alone.

local answers, key, argument = {}, 1, 2
for place = 1, #ARGV[1], 2 do
  local keys, arguments = string.byte(ARGV[1], place, place + 1)
  local own_keys = { unpack(KEYS, key, key + keys - 1) }
  local done, answer = pcall(run, own_keys, { unpack(ARGV, argument, argument + arguments - 1) })
  if not done then
    answer = '!' .. (type(answer) == 'table' and answer.err or tostring(answer))
  end
  answers[#answers + 1] = answer
  key, argument = key + keys, argument + arguments
end
return answers
