// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/version"
)

// Retain tears down the networks of all sandboxes except the given ones and those that this Pods has set up, and calls GC.
// Call it at the start of the agent with the sandboxes of the runtime. After an error, the next call retries.
func (p *Pods) Retain(ctx context.Context, sandboxIDs []string) error {
	h, err := p.collectSandboxIDs()
	if err != nil {
		return fmt.Errorf("retain networks of sandboxes: %w", err)
	}
	errs := p.tearDownAll(ctx, h.orphans(sandboxIDs))
	networks, err := p.podNetworks()
	if err != nil && !errors.Is(err, ErrNoNetwork) {
		errs = append(errs, err)
	}
	for _, n := range networks {
		errs = append(errs, p.collectGarbage(ctx, n))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("retain networks of sandboxes: %w", err)
	}
	return nil
}

// sandboxSets are the IDs of sandboxes in each place that may have remains of a sandbox.
type sandboxSets struct {
	recorded []string // with a record
	cached   []string // in libcni's cache
	pinned   []string // with an entry in the directory of network namespaces
	own      []string // set up or being set up by this Pods
}

// orphans returns the sorted IDs of sandboxes with a record, a cached result or a network namespace. It omits the sandboxes
// in valid and the sandboxes that this Pods has set up.
func (h sandboxSets) orphans(valid []string) []string {
	all := slices.Concat(h.recorded, h.cached, h.pinned)
	slices.Sort(all)
	all = slices.Compact(all)
	kept := make(map[string]bool, len(valid)+len(h.own))
	for _, id := range slices.Concat(valid, h.own) {
		kept[id] = true
	}
	return slices.DeleteFunc(all, func(id string) bool { return kept[id] })
}

// collectSandboxIDs returns the IDs of the sandboxes that have a record, a cached result or a namespace, and those in p.own.
func (p *Pods) collectSandboxIDs() (h sandboxSets, err error) {
	if h.recorded, err = p.records.listSandboxes(); err != nil {
		return h, err
	}
	cached, err := p.plugins.cachedAttachments("")
	if err != nil {
		return h, err
	}
	for _, a := range cached {
		h.cached = append(h.cached, a.attachment.ContainerID)
	}
	if h.pinned, err = p.namespaces.Names(); err != nil {
		return h, err
	}
	// read last, so that a sandbox that is set up meanwhile is not taken for an orphan
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.own {
		h.own = append(h.own, id)
	}
	return h, nil
}

// tearDownAll tears down the networks of sandboxes concurrently, and returns an error or nil for each, in the same order.
func (p *Pods) tearDownAll(ctx context.Context, sandboxes []string) []error {
	errs := make([]error, len(sandboxes))
	slots := make(chan struct{}, p.opts.Parallel)
	var workers sync.WaitGroup
	for i, id := range sandboxes {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			if err := p.tearDownOrphan(ctx, id); err != nil {
				errs[i] = fmt.Errorf("sandbox %s: %w", id, err)
			}
		})
	}
	workers.Wait()
	return errs
}

// tearDownOrphan tears down the network of an orphaned sandbox. It does nothing if this Pods has set up the sandbox in the
// meantime.
func (p *Pods) tearDownOrphan(ctx context.Context, sandbox string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	unlock, err := p.lockSandbox(ctx, sandbox)
	if err != nil {
		return err
	}
	defer unlock()
	if p.isOwn(sandbox) {
		return nil
	}
	return p.tearDownPod(ctx, sandbox)
}

// collectGarbage calls GC for network if its CNI version supports GC. Meanwhile, calls of [Pods.Setup] for pods in this
// network wait.
func (p *Pods) collectGarbage(ctx context.Context, network *Network) error {
	if able, err := version.GreaterThanOrEqualTo(network.Version, "1.1.0"); err != nil || !able || network.list.DisableGC {
		return err
	}
	gate := make(chan struct{})
	p.mu.Lock()
	if p.collecting[network.Name] != nil { // another Retain is collecting
		p.mu.Unlock()
		return nil
	}
	p.collecting[network.Name] = gate
	valid := p.ownAttachments(network.Name)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.collecting, network.Name)
		p.mu.Unlock()
		close(gate)
	}()
	others, err := p.recordedAttachments(network.Name)
	if err != nil {
		return newError("GC", network, Attachment{}, fmt.Errorf("attachments that are valid: %w", err))
	}
	return p.plugins.GC(ctx, network, dedupAttachments(append(valid, others...)))
}

// ownAttachments returns the attachments to network that this Pods has created, or is creating. The caller holds p.mu.
func (p *Pods) ownAttachments(network string) []Attachment {
	var found []Attachment
	for _, r := range p.own {
		found = append(found, r.attachmentsTo(network)...)
	}
	return found
}

// recordedAttachments returns the attachments to network in all records and in libcni's cache. The list must be complete,
// because GC removes all other attachments.
func (p *Pods) recordedAttachments(network string) ([]Attachment, error) {
	sandboxes, err := p.records.listSandboxes()
	if err != nil {
		return nil, err
	}
	var found []Attachment
	for _, id := range sandboxes {
		r, err := p.records.readRecord(id)
		if errors.Is(err, fs.ErrNotExist) { // torn down since the listing
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, r.attachmentsTo(network)...)
	}
	cached, err := p.plugins.cachedAttachments("")
	for _, a := range cached {
		if a.network.Name == network {
			found = append(found, a.attachment)
		}
	}
	return found, err
}

// attachmentsTo returns the recorded attachments to network.
func (r *record) attachmentsTo(network string) []Attachment {
	var found []Attachment
	for _, a := range r.Attachments {
		if a.Network == network {
			found = append(found, Attachment{ContainerID: r.Sandbox, Interface: a.Interface})
		}
	}
	return found
}

// dedupAttachments sorts the attachments and removes duplicates. It reuses the memory of the slice.
func dedupAttachments(all []Attachment) []Attachment {
	compare := func(a, b Attachment) int {
		if c := strings.Compare(a.ContainerID, b.ContainerID); c != 0 {
			return c
		}
		return strings.Compare(a.Interface, b.Interface)
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b Attachment) bool { return compare(a, b) == 0 })
}
