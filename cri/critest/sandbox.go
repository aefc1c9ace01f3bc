// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// errNotReady is what a sandbox that was stopped or died answers.
var errNotReady = errors.New("sandbox is not ready")

type sandbox struct {
	cri.Sandbox
	addr netip.Addr // zero: none
}

// RunSandbox makes a ready sandbox.
func (r *Runtime) RunSandbox(ctx context.Context, cfg *cri.SandboxConfig) (id string, err error) {
	call := r.begin(Call{Op: "RunPodSandbox", Name: podName(cfg.Pod)})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sb := range r.sandboxes {
		if sb.Pod == cfg.Pod && sb.Attempt == cfg.Attempt {
			return "", cri.ErrAlreadyExists
		}
	}
	sb := &sandbox{Sandbox: cri.Sandbox{
		Pod:            cfg.Pod,
		Attempt:        cfg.Attempt,
		CreatedAt:      time.Now(),
		Labels:         maps.Clone(cfg.Labels),
		Annotations:    maps.Clone(cfg.Annotations),
		RuntimeHandler: cfg.RuntimeHandler,
		Namespaces:     cfg.Security.Namespaces,
	}}
	if sb.Namespaces.Network != cri.NamespaceNode {
		if sb.addr, err = r.freeAddr(); err != nil {
			return "", err
		}
		sb.IPs = []string{sb.addr.String()}
	}
	sb.ID = r.newID(cfg.Pod.UID, attempt(cfg.Attempt))
	call.ID = sb.ID
	r.sandboxes = append(r.sandboxes, sb)
	r.byID[sb.ID] = sb
	r.publish(cri.EventCreated, sb.ID, sb.Pod)
	r.publish(cri.EventStarted, sb.ID, sb.Pod)
	return sb.ID, nil
}

// StopSandbox kills the sandbox's running containers and takes its address back.
func (r *Runtime) StopSandbox(ctx context.Context, id string) (err error) {
	call := r.begin(Call{Op: "StopPodSandbox", ID: id})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb := r.sandbox(id); sb != nil {
		r.stopSandbox(sb)
	}
	return nil
}

// RemoveSandbox stops the sandbox and removes it with its containers.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) (err error) {
	call := r.begin(Call{Op: "RemovePodSandbox", ID: id})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandbox(id)
	if sb == nil {
		return nil
	}
	r.stopSandbox(sb)
	for _, c := range slices.Clone(r.containers) {
		if c.SandboxID == id {
			r.remove(c)
		}
	}
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(o *sandbox) bool { return o == sb })
	delete(r.byID, id)
	r.publish(cri.EventDeleted, id, sb.Pod)
	return nil
}

// stopSandbox leaves created containers as they are, as containerd does: there is nothing to stop. r.mu is held.
func (r *Runtime) stopSandbox(sb *sandbox) {
	for _, c := range r.containers {
		if c.SandboxID == sb.ID {
			r.exit(c, Exit{Code: codeKilled})
		}
	}
	r.endSandbox(sb)
	delete(r.addrs, sb.addr)
	sb.IPs, sb.addr = nil, netip.Addr{}
}

// endSandbox makes the sandbox not ready. r.mu is held.
func (r *Runtime) endSandbox(sb *sandbox) {
	if sb.State == cri.SandboxReady {
		sb.State = cri.SandboxNotReady
		r.publish(cri.EventStopped, sb.ID, sb.Pod)
	}
}

// freeAddr goes round the range, so that an address that was given back is not the next one to be given out. r.mu
// is held.
func (r *Runtime) freeAddr() (netip.Addr, error) {
	first := r.opts.PodCIDR.Masked().Addr().Next()
	addr := r.lastAddr
	for range len(r.addrs) + 1 {
		if addr = addr.Next(); !r.opts.PodCIDR.Contains(addr) {
			addr = first
		}
		if r.opts.PodCIDR.Contains(addr) && !r.addrs[addr] {
			r.addrs[addr] = true
			r.lastAddr = addr
			return addr, nil
		}
	}
	return netip.Addr{}, errors.New("no address left in " + r.opts.PodCIDR.String())
}
