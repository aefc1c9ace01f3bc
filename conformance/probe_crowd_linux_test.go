// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// residentMemory returns the resident memory of this process in bytes.
func residentMemory(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		t.Fatalf("read /proc/self/statm: %v", err)
	}
	return float64(resident * os.Getpagesize())
}

// timeWait returns the number of connections to a local port in state TIME_WAIT, on the client side and on the server side.
func timeWait(t *testing.T, port int) (opened, accepted int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	const timeWait = "06"
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(string(text)) {
		switch field := strings.Fields(line); { // number, local address, remote address, state
		case len(field) < 4 || field[3] != timeWait:
		case strings.HasSuffix(field[2], suffix):
			opened++
		case strings.HasSuffix(field[1], suffix):
			accepted++
		}
	}
	return opened, accepted
}
