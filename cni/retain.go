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

// Retain tears down the network of every sandbox that is neither in the list nor set up by this Pods: of agents that were
// killed, also where the configuration file of a network is gone. Then the plugins that can collect garbage do so. It is
// called at the start with the sandboxes that the runtime has, and may be called at any time later. It goes on after an
// error; a sandbox that could not be torn down is tried again by the next call.
func (p *Pods) Retain(ctx context.Context, sandboxIDs []string) error {
	h, err := p.held()
	if err != nil {
		return fmt.Errorf("retain networks of sandboxes: %w", err)
	}
	errs := p.teardownAll(ctx, h.leftovers(sandboxIDs))
	networks, err := p.networks()
	if err != nil && !errors.Is(err, ErrNoNetwork) {
		errs = append(errs, err)
	}
	for _, n := range networks {
		errs = append(errs, p.collect(ctx, n))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("retain networks of sandboxes: %w", err)
	}
	return nil
}

// held is what is there of sandboxes, by ID.
type held struct {
	recorded []string // have a record
	cached   []string // are in libcni's cache
	pinned   []string // have a name in the directory of network namespaces
	mine     []string // set up, or being set up, by this Pods
}

// leftovers returns the sandboxes that nobody has any more, sorted.
func (h held) leftovers(valid []string) []string {
	all := slices.Concat(h.recorded, h.cached, h.pinned)
	slices.Sort(all)
	all = slices.Compact(all)
	kept := make(map[string]bool, len(valid)+len(h.mine))
	for _, id := range slices.Concat(valid, h.mine) {
		kept[id] = true
	}
	return slices.DeleteFunc(all, func(id string) bool { return kept[id] })
}

// held looks. What is set up meanwhile is among mine when it is found elsewhere, as that is asked last.
func (p *Pods) held() (h held, err error) {
	if h.recorded, err = p.records.list(); err != nil {
		return h, err
	}
	cached, err := p.plugins.cached("")
	if err != nil {
		return h, err
	}
	for _, a := range cached {
		h.cached = append(h.cached, a.attachment.ContainerID)
	}
	if h.pinned, err = p.spaces.Names(); err != nil {
		return h, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.mine {
		h.mine = append(h.mine, id)
	}
	return h, nil
}

// teardownAll tears down sandboxes, so many at a time, and returns what went wrong.
func (p *Pods) teardownAll(ctx context.Context, sandboxes []string) []error {
	errs := make([]error, len(sandboxes))
	slots := make(chan struct{}, p.opts.Parallel)
	var workers sync.WaitGroup
	for i, id := range sandboxes {
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			if err := p.teardownLeftover(ctx, id); err != nil {
				errs[i] = fmt.Errorf("sandbox %s: %w", id, err)
			}
		})
	}
	workers.Wait()
	return errs
}

// teardownLeftover tears down a sandbox, unless it has been set up since it was looked for.
func (p *Pods) teardownLeftover(ctx context.Context, sandbox string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leave, err := p.enter(ctx, sandbox)
	if err != nil {
		return err
	}
	defer leave()
	if p.isMine(sandbox) {
		return nil
	}
	return p.teardown(ctx, sandbox)
}

// collect has the plugins of a network collect garbage, if they can. Attachments to the network wait for that.
func (p *Pods) collect(ctx context.Context, n *Network) error {
	if able, err := version.GreaterThanOrEqualTo(n.Version, "1.1.0"); err != nil || !able || n.list.DisableGC {
		return err
	}
	gate := make(chan struct{})
	p.mu.Lock()
	if p.gates[n.Name] != nil { // another Retain does it
		p.mu.Unlock()
		return nil
	}
	p.gates[n.Name] = gate
	valid := p.minesOf(n.Name)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.gates, n.Name)
		p.mu.Unlock()
		close(gate)
	}()
	others, err := p.heldOf(n.Name)
	if err != nil {
		return newError("GC", n, Attachment{}, fmt.Errorf("attachments that are valid: %w", err))
	}
	return p.plugins.GC(ctx, n, unique(append(valid, others...)))
}

// minesOf returns the attachments to a network that this Pods makes. p.mu is held.
func (p *Pods) minesOf(network string) []Attachment {
	var found []Attachment
	for _, r := range p.mine {
		found = append(found, r.of(network)...)
	}
	return found
}

// heldOf returns the attachments to a network that are on record, and those that only libcni knows. Without all of them
// there is no telling what is garbage.
func (p *Pods) heldOf(network string) ([]Attachment, error) {
	sandboxes, err := p.records.list()
	if err != nil {
		return nil, err
	}
	var found []Attachment
	for _, id := range sandboxes {
		r, err := p.records.read(id)
		if errors.Is(err, fs.ErrNotExist) { // torn down since it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, r.of(network)...)
	}
	cached, err := p.plugins.cached("")
	for _, a := range cached {
		if a.network.Name == network {
			found = append(found, a.attachment)
		}
	}
	return found, err
}

// of returns the attachments of a sandbox to a network.
func (r *record) of(network string) []Attachment {
	var found []Attachment
	for _, a := range r.Attachments {
		if a.Network == network {
			found = append(found, Attachment{ContainerID: r.Sandbox, Interface: a.Interface})
		}
	}
	return found
}

// unique returns attachments in order, each once.
func unique(all []Attachment) []Attachment {
	compare := func(a, b Attachment) int {
		if c := strings.Compare(a.ContainerID, b.ContainerID); c != 0 {
			return c
		}
		return strings.Compare(a.Interface, b.Interface)
	}
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b Attachment) bool { return compare(a, b) == 0 })
}
