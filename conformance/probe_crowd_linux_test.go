// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// residentMemory returns the bytes of memory that this process takes from the machine.
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

// timeWait returns how many connections to a port of this machine are in TIME_WAIT where they were opened, and how many
// where they were accepted.
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
