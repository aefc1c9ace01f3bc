// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const largeOutput = 15 << 20

// largeRuntime responds to ExecSync with a large output.
type largeRuntime struct {
	v1.UnimplementedRuntimeServiceServer
}

func (largeRuntime) ExecSync(context.Context, *v1.ExecSyncRequest) (*v1.ExecSyncResponse, error) {
	return &v1.ExecSyncResponse{Stdout: make([]byte, largeOutput)}, nil
}

// countingListener counts the bytes that its connections write.
type countingListener struct {
	net.Listener
	written atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countingConn{conn, &l.written}, err
}

type countingConn struct {
	net.Conn
	written *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// Commands that exit together with large outputs, such as preStop hooks of a pod, do not use memory for all outputs: while
// two responses are received, the runtime retains the remaining ones except for one window each.
func TestLargeExecOutputsAreReceivedTwoAtATime(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	counting := &countingListener{Listener: l}
	server := grpc.NewServer()
	v1.RegisterRuntimeServiceServer(server, largeRuntime{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(counting) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	c, err := Dial(socket, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })

	for range maxReceiving {
		c.receiveSlots <- struct{}{}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.ExecSync(canceled, "c", nil, 0)
	require.ErrorIs(t, err, context.Canceled)

	const commands = 12
	var calls sync.WaitGroup
	for range commands {
		calls.Go(func() {
			result, err := c.ExecSync(t.Context(), "c", nil, 0)
			assert.NoError(t, err)
			assert.Len(t, result.Stdout, largeOutput)
		})
	}
	require.Eventually(t, func() bool { return counting.written.Load() >= commands*windowSize }, time.Minute, 10*time.Millisecond)
	require.Less(t, counting.written.Load(), int64((commands+1)*windowSize))
	for range maxReceiving {
		<-c.receiveSlots
	}
	calls.Wait()
	require.Greater(t, counting.written.Load(), int64(commands*largeOutput))
}
