// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

func TestTCPResults(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := probe.TCPConfig{Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port}
	p, err := probe.NewTCP(c)
	require.NoError(t, err)
	got, err := probeOnce(t, p, long)
	require.NoError(t, err)
	assert.Equal(t, probe.Result{Outcome: probe.Success}, got)

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = p.Probe(stopped)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, probe.Result{}, got)

	require.NoError(t, listener.Close())
	got, err = probeOnce(t, p, long)
	require.NoError(t, err)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "connection refused")

	_, err = probe.NewTCP(probe.TCPConfig{Host: "a b", Port: 1})
	require.EqualError(t, err, `field Host: "a b" is neither a name nor an IP address`)
	_, err = probe.NewTCP(probe.TCPConfig{Host: "fd00::1", Port: 65536})
	require.EqualError(t, err, `field Port: 65536 is not from 1 to 65535`)
}
