// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topologymanager

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the kubelet's tests, and prints how often these have called nodeagent.
func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Println("nodeagent: device.Merger.Merge", unitMerges.Load())
	os.Exit(code)
}
