// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle/podset"
)

// A store with a pod that takes for ever to check does not keep an agent from reading its sources.
func TestPoisonedStoreDoesNotStopStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var wg sync.WaitGroup
		release := make(chan struct{})
		begun := time.Now()
		setLoaded(t.Context(), &wg, slog.New(slog.NewTextHandler(&log, nil)), []podset.Set{{Source: "api"}}, func(podset.Set) { <-release })
		require.Equal(t, time.Minute, time.Since(begun))
		require.Contains(t, log.String(), "take too long to check")
		close(release)
		wg.Wait()

		var order []string
		setLoaded(t.Context(), &wg, slog.New(slog.DiscardHandler), []podset.Set{{Source: "file"}, {Source: "api"}}, func(s podset.Set) {
			time.Sleep(10 * time.Second)
			order = append(order, s.Source)
		})
		require.Equal(t, []string{"file", "api"}, order)
		wg.Wait()
	})
}
