// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lifecycle_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process"
)

// TestProcessScenarios runs the start and end scenarios with plain processes of this machine, without a daemon and without
// root: without and with restarts of the agent.
func TestProcessScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute, most of it waiting")
	}
	places := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for _, s := range slices.Concat(startScenarios(), endScenarios()) {
		for _, restart := range []bool{false, true} {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				t.Run(fmt.Sprint(s.name, ", restarts: ", restart), func(t *testing.T) {
					rt, err := process.Open(t.TempDir(), process.Options{})
					require.NoError(t, err)
					t.Cleanup(func() { _ = rt.Close() })
					h := newHost(t, rt, s.name, restart)
					h.image, h.shared = "none", t.TempDir()
					s.run(h)
				})
			})
		}
	}
	wg.Wait()
}
