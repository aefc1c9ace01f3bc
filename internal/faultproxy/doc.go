// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy is a proxy between an agent and a real API server, for tests of failing requests. It terminates the agent's
// TLS connections, sends the requests with its own client certificate, and injects faults. It stores nothing, and creates no
// responses except injected errors.
//
//	proxy := faultproxy.Start(t, faultproxy.Options{Target: plane.URL(), Server: server, Client: client, Roots: roots})
//	remove := proxy.Inject(faultproxy.Fault{Match: faultproxy.Match{Verb: "patch", Resource: "pods"}, Code: 409})
//	...
//	remove()
//	sent := proxy.Count(faultproxy.Match{Resource: "pods"})
//
// A fault applies to the requests that its [Match] selects: it delays a request, lets it hang, closes its connection or returns
// an error. [Proxy.CutWatches] closes open watches in the middle of their streams. [Proxy.SetUnavailable] refuses connections.
// [Proxy.SetBlackHole] drops all data of connections without closing them.
//
// The proxy does not authenticate clients and removes their credentials: all requests have the identity of Options.Client. So a
// test needs one proxy per user.
//
// Concurrency: all methods may be called from any goroutine.
//
// Errors: if the API server does not respond, the connection of the request is closed.
//
// Test kit: the package is one.
package faultproxy
