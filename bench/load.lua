-- load.lua - how wrk asks, and one line of what it saw that the driver can read.
--
-- Arguments: DEPTH, the requests sent at once on a connection (1: no pipelining), FIELDS, the
-- number of header lines added to each, and, if each answer is to be compared, its BODY.
--
-- Without BODY there is no function `response': it is called for each answer and costs more than
-- the server does.  wrk counts statuses from 400 on and socket errors itself; the driver compares
-- the number of bytes, and one answer after each round.
--
-- SPDX-License-Identifier: GPL-3.0-or-later

local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init(args)
    local depth, fields, expected = tonumber(args[1] or 1), tonumber(args[2] or 0), args[3]
    wrong = 0
    if expected then
        response = function(status, _, body)
            if status ~= 200 or body ~= expected then wrong = wrong + 1 end
        end
    end
    for i = 1, fields do
        wrk.headers["X-Field-" .. i] = "value of field " .. i
    end
    if depth > 1 then
        local one = wrk.format()
        local all = string.rep(one, depth)
        request = function() return all end
    end
end

function done(summary, latency, requests)
    local e = summary.errors
    local wrong_all = 0
    for _, thread in ipairs(threads) do wrong_all = wrong_all + thread:get("wrong") end
    io.write(string.format(
        "BENCH (:requests %d :us %d :bytes %d :errors %d :wrong %d :mean %.1f :sd %.1f :max %d" ..
        " :p50 %d :p90 %d :p99 %d)\n",
        summary.requests, summary.duration, summary.bytes,
        e.connect + e.read + e.write + e.status + e.timeout, wrong_all,
        latency.mean, latency.stdev, latency.max,
        latency:percentile(50), latency:percentile(90), latency:percentile(99)))
end
