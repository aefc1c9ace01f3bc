// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"context"
	"net/netip"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Fixed is a machine with constant hardware and addresses, for simulated nodes. It implements [Capacity], and the interface Hosts
// of package heartbeat.
type Fixed struct {
	Info machine.Info
	IPs  []netip.Addr // of the network interface, the default address first; empty: no network
}

// Machine returns f.Info.
func (f Fixed) Machine(context.Context) (machine.Info, error) { return f.Info, nil }

// Host returns a Host with the interface addresses f.IPs. The first of them is the default address.
func (f Fixed) Host(context.Context, *Config) Host {
	h := Host{Interfaces: f.IPs}
	if len(f.IPs) > 0 {
		h.Default = f.IPs[0]
	}
	return h
}
