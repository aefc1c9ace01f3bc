// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
)

// Log lines about a failed rotation contain the pod and the container, not only an ID.
func TestLogLinesNamePodAndContainer(t *testing.T) {
	var lines lockedBuffer
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r, err := logs.NewRotator(failingReopener{}, logs.RotatorOptions{
		Policy: small,
		Logger: slog.New(slog.NewTextHandler(&lines, nil)),
		Hooks:  logs.Hooks{RotationFailed: func(logs.Log, error, time.Duration) { stop() }}, // called after the log line
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "0.log")
	require.NoError(t, os.WriteFile(path, make([]byte, 2000), 0o600))
	r.SetLogs([]logs.Log{{
		ContainerID: "id", Path: path, Pod: cri.PodIdentity{UID: "u", Name: "web", Namespace: "shop"}, Container: "nginx",
	}})
	require.NoError(t, r.Run(ctx))
	assert.Contains(t, lines.String(), "namespace=shop pod=web container=nginx containerID=id path="+path)
}

// failingReopener is a runtime that cannot reopen logs.
type failingReopener struct{}

func (failingReopener) ReopenContainerLog(context.Context, string) error {
	return errors.New("not now")
}

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
