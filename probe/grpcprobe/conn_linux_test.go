// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without file descriptors, a probe returns an error, not a failure. The test is not parallel, because the limit applies to
// the process.
func TestProbeWithoutFileDescriptorsIsAnError(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	startServer(t, l, newHealthServer())
	p := newProber(t, l.config())
	warm := newProber(t, l.config())
	require.Equal(t, success(), probeOnce(t, warm, long))

	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	none := before
	none.Cur = 0
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }()

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	result, err := p.Probe(ctx)
	require.ErrorIs(t, err, syscall.EMFILE)
	assert.Zero(t, result)
	assert.Equal(t, success(), probeOnce(t, warm, long), "an open connection needs no file descriptor")
}
