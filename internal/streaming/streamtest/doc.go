// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package streamtest has a runtime for tests of streaming sessions, scripted by the command that is run, and clients for
// every protocol that package cri/streaming speaks.
//
// A [Runtime] is a [cri.SessionRunner]. [Serve] makes of it a [cri.Streamer]: a server that speaks SPDY of version 4 and
// WebSockets at a URL, which holds for one use, as container runtimes do.
//
// What is not modelled: processes, terminals (a TTY only joins the outputs), namespaces and networks. Ports are functions.
package streamtest
