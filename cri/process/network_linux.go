// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
)

// undoTimeout limits the teardown of a network whose sandbox could not be persisted.
const undoTimeout = 30 * time.Second

// setUpNetwork sets up the network of a new sandbox, unless it is on the host network, and stores namespace and addresses
// in sb.
func (r *Runtime) setUpNetwork(ctx context.Context, sb *sandbox, config *cri.SandboxConfig) error {
	if r.options.Network == nil || config.Security.Namespaces.Network == cri.NamespaceNode {
		return nil
	}
	err := r.retainNetworks(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("set up network: %w", context.Cause(ctx))
	}
	if err != nil {
		r.log.Warn("cannot tear down networks of removed sandboxes", "error", err)
	}
	n, err := r.options.Network.Setup(ctx, sb.ID, config)
	if err == nil && (!filepath.IsAbs(n.Netns) || len(n.IPs) == 0) {
		err = errors.Join(fmt.Errorf("namespace %q and %d addresses: Setup must return an absolute path and an address", n.Netns, len(n.IPs)),
			r.undoNetwork(ctx, sb.ID))
	}
	if err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	sb.Network, sb.Namespaces.Network = &n, cri.NamespacePod
	for _, ip := range n.IPs {
		sb.IPs = append(sb.IPs, ip.String())
	}
	sb.Hostname, sb.Sysctls = config.Hostname, networkSysctls(config.Sysctls)
	return nil
}

// undoNetwork tears down the network of a sandbox whose creation has failed, even if ctx has ended.
func (r *Runtime) undoNetwork(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return r.options.Network.Teardown(ctx, id)
}

// retainNetworks tears down networks that a previous agent process left for removed sandboxes, until it has succeeded
// once.
func (r *Runtime) retainNetworks(ctx context.Context) error {
	r.mu.Lock()
	if r.networksRetained {
		r.mu.Unlock()
		return nil
	}
	// concurrent calls wait: Retain would tear down the networks of sandboxes that are created meanwhile
	if others := r.retaining; others != nil {
		r.mu.Unlock()
		select {
		case <-others:
			return nil // its caller reports the error, if there is one
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	defer close(done)
	r.retaining = done
	valid := make([]string, 0, len(r.sandboxes)+len(r.pending))
	for _, s := range r.sandboxes {
		if s.Network != nil {
			valid = append(valid, s.ID)
		}
	}
	for id := range r.pending {
		valid = append(valid, id)
	}
	r.mu.Unlock()
	err := r.options.Network.Retain(ctx, valid)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.networksRetained, r.retaining = err == nil, nil
	return err
}

// tearDownNetwork tears down the network of a stopped sandbox. It does nothing for a sandbox without its own network.
func (r *Runtime) tearDownNetwork(ctx context.Context, sb *sandbox) error {
	r.mu.Lock()
	network := sb.Network
	r.mu.Unlock()
	if network == nil {
		return nil
	}
	if r.options.Network == nil {
		return fmt.Errorf("tear down network %s: Options.Network is nil: open the runtime with the one that set it up", network.Netns)
	}
	if err := r.options.Network.Teardown(ctx, sb.ID); err != nil {
		return fmt.Errorf("tear down network: %w", err)
	}
	return nil
}

// isPresent reports whether the network namespace exists. A reboot removes it.
func (n *SandboxNetwork) isPresent() bool {
	var st unix.Statfs_t
	return unix.Statfs(n.Netns, &st) == nil && st.Type == unix.NSFS_MAGIC
}
