// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// fullBacklog returns a port whose server accepts no connections and whose backlog is full: new connections get no response.
func fullBacklog(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	for range 16 {
		conn, err := net.DialTimeout("tcp", address.String(), 200*time.Millisecond)
		if err != nil {
			return address.Port
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the backlog of a listener never becomes full")
	return 0
}
