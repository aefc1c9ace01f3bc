// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle"
)

// A store with a pod that takes for ever to check does not keep an agent from reading its sources.
func TestPoisonedStoreDoesNotStopStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var wg sync.WaitGroup
		release := make(chan struct{})
		begun := time.Now()
		setLoaded(t.Context(), &wg, slog.New(slog.NewTextHandler(&log, nil)), []lifecycle.PodSet{{Source: "api"}}, func(lifecycle.PodSet) { <-release })
		require.Equal(t, time.Minute, time.Since(begun))
		require.Contains(t, log.String(), "take too long to check")
		close(release)
		wg.Wait()

		var order []string
		setLoaded(t.Context(), &wg, slog.New(slog.DiscardHandler), []lifecycle.PodSet{{Source: "file"}, {Source: "api"}}, func(s lifecycle.PodSet) {
			time.Sleep(10 * time.Second)
			order = append(order, s.Source)
		})
		require.Equal(t, []string{"file", "api"}, order)
		wg.Wait()
	})
}
