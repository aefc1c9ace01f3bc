// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"net/netip"

	"github.com/seed81659283/nodeagent/cri"
)

// Network gives sandboxes a network of their own. Package cni has one that runs CNI plugins; examples/runtime shows what
// connects it. All methods may be called from many goroutines, for different sandboxes at the same time, and return in
// bounded time.
type Network interface {
	// Setup makes the network of a sandbox that is about to be run. What fails is undone. The network lasts until
	// Teardown, whatever becomes of this program.
	Setup(ctx context.Context, sandboxID string, c *cri.SandboxConfig) (SandboxNetwork, error)
	// Teardown removes the network of a sandbox. It may be repeated; a network that is not there is success.
	Teardown(ctx context.Context, sandboxID string) error
	// Retain tears down the network of every sandbox that is not in the list: what a program that was killed has left.
	// The runtime calls it once before it sets up the first network, and again after an error. While it runs no network
	// is set up that is not in the list.
	Retain(ctx context.Context, sandboxIDs []string) error
}

// NetworkReadier is the optional capability of a [Network] to say beforehand that Setup would fail.
type NetworkReadier interface {
	// Ready returns nil, or why no sandbox can be set up now. It waits for no other call.
	Ready(ctx context.Context) error
}

// SandboxNetwork is the network of a sandbox.
type SandboxNetwork struct {
	Netns string       // absolute path of the network namespace, which stays there until Teardown
	IPs   []netip.Addr // of the sandbox, the primary one first; at least one
}
