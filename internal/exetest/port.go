// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package exetest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Range of ports for [FreePort], from firstPort to lastPort. It is below the ephemeral ports of the kernel. The kernel therefore
// gives none of these ports to another socket before the program listens on it.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// FreePort returns a TCP port on which no process listens at 127.0.0.1. A test writes it into the configuration of a program that
// will listen there.
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
