// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"context"
	"net/netip"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Fixed is a machine that does not change, for simulated nodes. It is a [Capacity], and the Hosts of package heartbeat.
type Fixed struct {
	Info machine.Info
	IPs  []netip.Addr // of its network interface, the default one first. None: the machine has no network
}

// Machine returns Info.
func (f Fixed) Machine(context.Context) (machine.Info, error) { return f.Info, nil }

// Host returns the addresses.
func (f Fixed) Host(context.Context, *Config) Host {
	h := Host{Interfaces: f.IPs}
	if len(f.IPs) > 0 {
		h.Default = f.IPs[0]
	}
	return h
}
