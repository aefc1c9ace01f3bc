// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memorymanager

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
)

// TestMain runs the kubelet's tests, and prints how often these have called nodeagent.
func TestMain(m *testing.M) {
	code := m.Run()
	for _, called := range []struct {
		name  string
		count *atomic.Int64
	}{
		{"numa.Policy.Restore", &unitRestores},
		{"numa.Policy.Reserve", &unitReserves},
		{"numa.Policy.ReservePod", &unitPodReserves},
		{"numa.Policy.ReleaseContainer", &unitReleases},
		{"numa.Policy.Hints", &unitHintCalls},
		{"numa.Policy.PodHints", &unitPodHintCalls},
	} {
		fmt.Println("nodeagent:", called.name, called.count.Load())
	}
	os.Exit(code)
}
