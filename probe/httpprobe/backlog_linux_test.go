// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package httpprobe_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// The server accepts no connections, and the kernel drops new connections once the queue is full.
func TestHTTPFailsWhenTheBacklogIsFull(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, unix.Listen(fd, 0))
	name, err := unix.Getsockname(fd)
	require.NoError(t, err)
	address := net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*unix.SockaddrInet4).Port}
	for err == nil { // closed connections stay in the queue until they are accepted
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", address.String(), 200*time.Millisecond); err == nil {
			conn.Close()
		}
	}
	got := probeHTTP(t, httpprobe.Config{Host: "127.0.0.1", Port: address.Port}, soon)
	assert.Equal(t, probe.Failure, got.Outcome)
	assert.Contains(t, got.Output, "Client.Timeout exceeded while awaiting headers")
}
