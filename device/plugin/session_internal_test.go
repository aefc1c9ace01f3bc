// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device"
)

type refusingReceiver struct{}

func (refusingReceiver) Connect(string, string, device.Plugin) (device.Feed, error) {
	return nil, errAbandoned
}

// A session that has ended retains no earlier session: otherwise a plugin that registers again and again would need more and more memory.
func TestEndedSessionRetainsNoOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "hung.sock")
	l, err := net.Listen("unix", path) // accepts no connection
	require.NoError(t, err)
	defer l.Close()
	h, err := New(Options{Dir: dir, Receiver: refusingReceiver{}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	var last *session
	for range 10 {
		s := newSession("vendor.example/gpu", path, true)
		h.startSession(ctx, &wg, s)
		if last != nil {
			<-last.done
			require.ErrorIs(t, last.err, errReplaced)
			require.Empty(t, last.previous)
		}
		last = s
	}
}
