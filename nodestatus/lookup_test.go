// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/nodestatus"
)

// A DNS server without a response delays Host by its timeout, and at most until ctx ends.
func TestLookupReturnsAtTimeoutOfNameServer(t *testing.T) {
	dialed := make(chan struct{}, 100)
	silent := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialed <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	c := &nodestatus.Config{Name: "node-1.example.com"}
	start := time.Now()
	h := nodestatus.Lookup{Resolver: silent, Timeout: 2 * time.Second}.Host(t.Context(), c)
	assert.Empty(t, h.Named)
	assert.NotEmpty(t, h.Interfaces)
	assert.NotEmpty(t, dialed)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	nodestatus.Lookup{Resolver: silent, Timeout: time.Hour}.Host(ctx, c)
	assert.Less(t, time.Since(start), time.Minute)
}

func TestLookupSkipsDNSWithConfiguredAddress(t *testing.T) {
	never := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		t.Error("must not query a name server")
		return nil, errors.New("none")
	}}
	for _, c := range []nodestatus.Config{
		{Name: "n1", NodeIPs: ips("10.0.0.1")}, {Name: "192.0.2.1"}, {Name: "n1", ExternalCloudProvider: true},
	} {
		h := nodestatus.Lookup{Resolver: never}.Host(t.Context(), &c)
		assert.Contains(t, h.Interfaces, netip.MustParseAddr("127.0.0.1"))
		assert.False(t, h.Default.IsValid())
	}
}

// A machine with a default route finds its address. Without a default route, Err says so.
func TestLookupFindsAddressOfDefaultRoute(t *testing.T) {
	nobody := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("none") }}
	for _, family := range [][]netip.Addr{nil, ips("0.0.0.0"), ips("::")} {
		h := nodestatus.Lookup{Resolver: nobody}.Host(t.Context(), &nodestatus.Config{Name: "node-1.example.com", NodeIPs: family})
		if h.Err != nil {
			assert.ErrorContains(t, h.Err, "find default route: ")
			continue
		}
		assert.Contains(t, h.Interfaces, h.Default)
	}
}
