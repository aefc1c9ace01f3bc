// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package exetest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports that [FreePort] chooses from. The kernel gives none of them to whoever listens on port 0 or connects, so that one is still free
// when a program has started, and when it is started again.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// FreePort returns a TCP port of the loopback address that nobody listens on, for the config of a program.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatalf("close port %d: %v", port, err)
		}
		return port
	}
	t.Fatalf("no port between %d and %d is free", firstPort, lastPort)
	return 0
}
