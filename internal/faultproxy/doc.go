// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy stands between an agent and a real API server, for tests of what an agent does when requests fail: it ends the TLS
// of the agent, speaks to the API server as a user of its own, and injects faults. It stores nothing and answers nothing itself but
// the errors that it is asked for.
//
// # Model
//
// [Start] listens on loopback until the test ends. A fault is for requests that [Match], until it is removed:
//
//	proxy := faultproxy.Start(t, faultproxy.Options{Target: plane.URL(), Server: server, Client: client, Roots: roots})
//	remove := proxy.Inject(faultproxy.Fault{Match: faultproxy.Match{Verb: "patch", Resource: "pods"}, Code: 409})
//	...
//	remove()
//	sent := proxy.Count(faultproxy.Match{Resource: "pods"})
//
// A request gets an error, waits, hangs, or its connection is closed. [Proxy.CutWatches] ends the watches that are open in the middle
// of their streams, [Proxy.SetAway] refuses connections, and with [Proxy.SetBlackHole] nothing comes through any more, on the
// connections that there are neither, although nobody closes them: what is lost to them then does not come back.
//
// Whoever connects need not say who it is, and credentials that it sends are dropped: all requests are those of Options.Client. So a
// test has a single user behind each proxy.
//
// # Concurrency
//
// All methods can be called from any goroutine.
//
// # Errors
//
// A request that the API server does not answer has its connection closed, as if there were no proxy.
package faultproxy
