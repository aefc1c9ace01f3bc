// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/certtest"
)

// The clock is set forward and back by any time: due actions follow within seconds, and not in a loop.
func TestRotationFollowsSetClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, err := certtest.Start(certtest.Options{TTL: 24 * time.Hour})
		require.NoError(t, err)
		defer cluster.Close()
		dir := t.TempDir()
		bootstrap := filepath.Join(dir, "bootstrap.conf")
		require.NoError(t, os.WriteFile(bootstrap, cluster.BootstrapKubeconfig(), 0o600))
		var rotated, offset atomic.Int64
		client, err := NewClient(ClientOptions{
			NodeName: "n1", Kubeconfig: filepath.Join(dir, "kubelet.conf"), BootstrapKubeconfig: bootstrap, Dir: filepath.Join(dir, "pki"),
			Dial: cluster.Dial, Rand: func() float64 { return 0 },
			Hooks: Hooks{Rotated: func(_, _ *x509.Certificate) { rotated.Add(1) }},
		})
		require.NoError(t, err)
		client.rotation.base.now = func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load())) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- client.Run(ctx) }()
		defer func() { cancel(); assert.NoError(t, <-done) }()

		for _, set := range []struct {
			to  time.Duration // offset to the clock of the signer
			due bool
		}{
			{0, true}, // there is no certificate yet
			{time.Hour, false},
			{-time.Hour, false}, // the stored certificate was not valid yet
			{18 * time.Hour, true},
			{0, false},
			{25 * time.Hour, true}, // the certificate has expired
			{-48 * time.Hour, false},
		} {
			before := rotated.Load()
			offset.Store(int64(set.to))
			time.Sleep(15 * time.Second)
			soon := rotated.Load() - before
			time.Sleep(5 * time.Minute)
			all := rotated.Load() - before
			if set.due {
				assert.Positive(t, soon, "at %v", set.to)
				assert.LessOrEqual(t, all, int64(7), "at %v: each new certificate must be rotated at once by this clock, and is requested once a minute", set.to)
			} else {
				assert.Zero(t, all, "at %v", set.to)
			}
		}
	})
}
