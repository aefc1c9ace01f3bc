// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probeconn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

func TestCheckAddress(t *testing.T) {
	for _, test := range []struct {
		host string
		port int
		want string // empty: the address is valid
	}{
		{host: "10.0.0.1", port: 1},
		{host: "2001:db8::1", port: 65535},
		{host: "fe80::1%eth0", port: 80},
		{host: "db.example", port: 80},
		{host: "db_1", port: 80},
		{host: "bücher.example", port: 80},
		{host: "", port: 0, want: "field Port: 0 is not from 1 to 65535"},
		{host: "h", port: -1, want: "field Port: -1 is not from 1 to 65535"},
		{host: "h", port: 65536, want: "field Port: 65536 is not from 1 to 65535"},
		{host: "", port: 80, want: "field Host: is empty"},
		{host: "a b", port: 80, want: `field Host: "a b" is neither a name nor an IP address`},
		{host: "[::1]", port: 80, want: `field Host: "[::1]" is neither a name nor an IP address`},
		{host: "h:80", port: 80, want: `field Host: "h:80" is neither a name nor an IP address`},
		{host: "a/b", port: 80, want: `field Host: "a/b" is neither a name nor an IP address`},
		{host: "a|b", port: 80, want: `field Host: "a|b" is neither a name nor an IP address`},
		{host: "a\r\nb", port: 80, want: `field Host: "a\r\nb" is neither a name nor an IP address`},
		{host: "\xff", port: 80, want: `field Host: "\xff" is neither a name nor an IP address`},
	} {
		err := probeconn.CheckAddress(test.host, test.port)
		if test.want == "" {
			assert.NoError(t, err, "%q %d", test.host, test.port)
		} else {
			assert.EqualError(t, err, test.want)
		}
	}
}

func TestAgentError(t *testing.T) {
	stop := errors.New("the agent stops")
	canceled, cancel := context.WithCancelCause(context.Background())
	cancel(stop)
	late, end := context.WithTimeout(context.Background(), 0)
	defer end()
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	shortage := fmt.Errorf("dial: %w", syscall.EMFILE)
	hostShortage := fmt.Errorf("dial: %w", syscall.ENFILE)
	for name, test := range map[string]struct {
		ctx       context.Context
		err, want error
	}{
		"refused":                             {t.Context(), refused, nil},
		"deadline":                            {late, refused, nil},
		"canceled":                            {canceled, refused, stop},
		"agent without free file descriptors": {t.Context(), shortage, shortage},
		"host without free file descriptors":  {late, hostShortage, hostShortage},
		"canceled, no free file descriptors":  {canceled, shortage, stop},
	} {
		assert.Equal(t, test.want, probeconn.AgentError(test.ctx, test.err), name)
	}
}

// Dial opens no connection if its context has ended.
func TestDialFailsWithEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := probeconn.Dial(ctx, "tcp", "127.0.0.1:1")
	require.ErrorIs(t, err, context.Canceled)
}
