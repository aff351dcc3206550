-- load.lua - how wrk asks, and one line of what it saw that the driver can read.
--
-- Arguments: DEPTH, the requests sent at once on a connection (1: no pipelining), and FIELDS, the
-- number of header lines added to each.
--
-- No function `response' here: it would be called for each answer and cost more than the server
-- does.  wrk counts statuses from 400 on and socket errors itself; contents are checked by the
-- driver, by the number of bytes and before and after each round by value.
--
-- SPDX-License-Identifier: GPL-3.0-or-later

function init(args)
    local depth, fields = tonumber(args[1] or 1), tonumber(args[2] or 0)
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
    io.write(string.format(
        "BENCH (:requests %d :us %d :bytes %d :errors %d :mean %.1f :sd %.1f :max %d" ..
        " :p50 %d :p90 %d :p99 %d)\n",
        summary.requests, summary.duration, summary.bytes,
        e.connect + e.read + e.write + e.status + e.timeout,
        latency.mean, latency.stdev, latency.max,
        latency:percentile(50), latency:percentile(90), latency:percentile(99)))
end
