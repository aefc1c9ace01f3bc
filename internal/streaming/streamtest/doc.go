// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package streamtest has a fake runtime for tests of streaming sessions, which runs scripts instead of commands, and clients for
// every protocol of package cri/streaming.
//
// A [Runtime] implements [cri.SessionRunner]. [Serve] turns it into a [cri.Streamer]: a server with SPDY of version 4 and
// WebSockets at URLs that are valid once, like a container runtime.
//
// It does not model processes, terminals (a TTY only merges stdout and stderr), namespaces and networks. Ports are functions.
package streamtest
