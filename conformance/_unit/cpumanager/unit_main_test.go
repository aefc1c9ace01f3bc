// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpumanager

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
		{"cpus.Layout.Take", &unitTakes},
		{"cpus.NewPolicy", &unitNews},
		{"cpus.Policy.Restore", &unitRestores},
		{"cpus.Policy.ReserveContainer", &unitReserves},
		{"cpus.Policy.ReservePod", &unitPodReserves},
		{"cpus.Policy.Retain", &unitRetains},
		{"cpus.Policy.Hints", &unitHintCalls},
		{"cpus.Policy.PodHints", &unitPodHintCalls},
		{"cpus.Pod", &unitCounts},
	} {
		fmt.Println("nodeagent:", called.name, called.count.Load())
	}
	os.Exit(code)
}
