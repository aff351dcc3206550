%% bench.erl - the peer "erlang": inets httpd with one callback module.
%%
%% Usage: erl -noshell -s bench start PORT HANDLER FILL
%%
%% SPDX-License-Identifier: GPL-3.0-or-later

-module(bench).
-export([start/1, do/1]).
-include_lib("inets/include/httpd.hrl").

start([Port, Handler, Fill]) ->
    persistent_term:put(handler, Handler),
    Length = list_to_integer(atom_to_list(Fill)),
    persistent_term:put(fill, [{"X-Fill", lists:duplicate(Length, $0)} || Length > 0]),
    ok = inets:start(),
    {ok, _} = inets:start(httpd, [{port, list_to_integer(atom_to_list(Port))},
                                  {bind_address, {127, 0, 0, 1}},
                                  {server_name, "bench"},
                                  {server_root, "."},
                                  {document_root, "."},
                                  {max_keep_alive_request, 1000000000},
                                  {keep_alive_timeout, 60},
                                  {max_clients, 20000},
                                  {modules, [?MODULE]}]).

do(#mod{request_uri = Uri}) ->
    Body = case persistent_term:get(handler) of
               ok -> "ok";
               plus ->
                   [_, N] = string:split(Uri, "n="),
                   integer_to_list(list_to_integer(N) + 1)
           end,
    Head = [{code, 200}, {content_type, "text/plain"},
            {content_length, integer_to_list(length(Body))} | persistent_term:get(fill)],
    {proceed, [{response, {response, Head, Body}}]}.
