# thin.ru - the peer "thin": a Rack program.  BENCH_HANDLER and BENCH_FILL come from the driver.
#
# SPDX-License-Identifier: GPL-3.0-or-later

handler = ENV['BENCH_HANDLER']
fill = ENV['BENCH_FILL'].to_i

run(lambda do |env|
  body = handler == 'ok' ? 'ok' : (env['QUERY_STRING'][/n=(\d+)/, 1].to_i + 1).to_s
  headers = { 'Content-Type' => 'text/plain', 'Content-Length' => body.bytesize.to_s }
  headers['X-Fill'] = '0' * fill if fill > 0
  [200, headers, [body]]
end)
