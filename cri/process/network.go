// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"net/netip"

	"github.com/seed81659283/nodeagent/cri"
)

// Network sets up and tears down the networks of sandboxes. Package cni has an implementation with CNI plugins; examples/runtime
// connects it. All methods may be called concurrently for different sandboxes, and return in bounded time.
//
// All processes of a sandbox with a network are in its network namespace, with the pod's host name and network sysctls. /sys still
// shows the host's interfaces. After a reboot the sandbox is not ready. A runtime without Network can list sandboxes that have a
// network, but cannot stop them.
type Network interface {
	// Setup sets up the network of a new sandbox. On error it undoes its changes. The network must exist until Teardown, even
	// after this process exits.
	Setup(ctx context.Context, sandboxID string, c *cri.SandboxConfig) (SandboxNetwork, error)
	// Teardown removes the network of a sandbox. It may be repeated and succeeds if the network does not exist.
	Teardown(ctx context.Context, sandboxID string) error
	// Retain tears down the network of every sandbox that is not in sandboxIDs, such as remains of a killed agent. The runtime
	// calls it once before the first Setup, and again after an error. During the call, no network is set up for a sandbox outside
	// sandboxIDs.
	Retain(ctx context.Context, sandboxIDs []string) error
}

// NetworkReadier is an optional interface of a [Network] that reports whether sandboxes can be set up.
type NetworkReadier interface {
	// Ready returns nil, or the reason why Setup would fail now. It does not wait for other calls.
	Ready(ctx context.Context) error
}

// SandboxNetwork is the network of a sandbox, as returned by Network.Setup.
type SandboxNetwork struct {
	Netns string       // absolute path of the network namespace, which exists until Teardown
	IPs   []netip.Addr // addresses of the sandbox, primary address first; at least one
}
