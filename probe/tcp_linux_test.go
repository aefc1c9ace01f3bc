// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/probe"
)

// countTimeWait returns the number of IPv4 connections to a port that this side keeps in TIME_WAIT.
func countTimeWait(t *testing.T, port int) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) && f[3] == "06" {
			n++
		}
	}
	return n
}

func TestTCPLeavesNoPortInTimeWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	const probes = 50
	ends := make(chan error, probes)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
			ends <- err
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	p, err := probe.NewTCP(probe.TCPConfig{Host: "127.0.0.1", Port: port})
	require.NoError(t, err)
	for range probes {
		got, err := probeOnce(t, p, long)
		require.NoError(t, err)
		require.Equal(t, probe.Success, got.Outcome)
		require.True(t, errors.Is(<-ends, io.EOF), "the server reads an orderly close")
	}
	assert.Zero(t, countTimeWait(t, port))
}

// The server accepts no connections, and the kernel drops new connections once the queue is full.
func TestTCPFailsWhenTheBacklogIsFull(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	port := name.(*unix.SockaddrInet4).Port

	p, err := probe.NewTCP(probe.TCPConfig{Host: "127.0.0.1", Port: port})
	require.NoError(t, err)
	var got probe.Result
	for range 10 { // closed connections stay in the queue until they are accepted
		if got, err = probeOnce(t, p, soon); got.Outcome == probe.Failure {
			break
		}
	}
	require.NoError(t, err)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "i/o timeout")
}
