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

// errNotReady is the error of calls that require a ready sandbox.
var errNotReady = errors.New("sandbox is not ready")

// sandbox is a sandbox of a [Runtime], and its address.
type sandbox struct {
	cri.Sandbox
	addr netip.Addr // zero: on the host network, or stopped
}

// RunSandbox creates a ready sandbox and returns its ID. It assigns an IP address, unless the sandbox is on the host network.
func (r *Runtime) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (id string, err error) {
	call := r.recordCall(Call{Op: "RunPodSandbox", Name: podName(config.Pod)})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sb := range r.sandboxes {
		if sb.Pod == config.Pod && sb.Attempt == config.Attempt {
			return "", cri.ErrAlreadyExists
		}
	}
	sb := &sandbox{Sandbox: cri.Sandbox{
		Pod:            config.Pod,
		Attempt:        config.Attempt,
		CreatedAt:      time.Now(),
		Labels:         maps.Clone(config.Labels),
		Annotations:    maps.Clone(config.Annotations),
		RuntimeHandler: config.RuntimeHandler,
		Namespaces:     config.Security.Namespaces,
	}}
	if sb.Namespaces.Network != cri.NamespaceNode {
		if sb.addr, err = r.allocateAddr(); err != nil {
			return "", err
		}
		sb.IPs = []string{sb.addr.String()}
	}
	sb.ID = r.newID(config.Pod.UID, formatAttempt(config.Attempt))
	call.ID = sb.ID
	r.sandboxes = append(r.sandboxes, sb)
	r.byID[sb.ID] = sb
	r.publishEvent(cri.EventCreated, sb.ID, sb.Pod)
	r.publishEvent(cri.EventStarted, sb.ID, sb.Pod)
	return sb.ID, nil
}

// StopSandbox kills the sandbox's running containers and releases its address.
func (r *Runtime) StopSandbox(ctx context.Context, id string) (err error) {
	call := r.recordCall(Call{Op: "StopPodSandbox", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sb := r.sandboxByID(id); sb != nil {
		r.stopSandbox(sb)
	}
	return nil
}

// RemoveSandbox stops the sandbox and removes it and its containers.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) (err error) {
	call := r.recordCall(Call{Op: "RemovePodSandbox", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxByID(id)
	if sb == nil {
		return nil
	}
	r.stopSandbox(sb)
	for _, c := range slices.Clone(r.containers) {
		if c.SandboxID == id {
			r.removeContainer(c)
		}
	}
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(o *sandbox) bool { return o == sb })
	delete(r.byID, id)
	r.publishEvent(cri.EventDeleted, id, sb.Pod)
	return nil
}

// stopSandbox kills the running containers of a sandbox, and makes the sandbox not ready. As in containerd, created containers
// stay created. r.mu is held.
func (r *Runtime) stopSandbox(sb *sandbox) {
	for _, c := range r.containers {
		if c.SandboxID == sb.ID {
			r.exitContainer(c, Exit{Code: codeKilled})
		}
	}
	r.setNotReady(sb)
	delete(r.addrs, sb.addr)
	sb.IPs, sb.addr = nil, netip.Addr{}
}

// setNotReady makes a ready sandbox not ready. r.mu is held.
func (r *Runtime) setNotReady(sb *sandbox) {
	if sb.State == cri.SandboxReady {
		sb.State = cri.SandboxNotReady
		r.publishEvent(cri.EventStopped, sb.ID, sb.Pod)
	}
}

// allocateAddr returns the next free address of the pod range. r.mu is held.
func (r *Runtime) allocateAddr() (netip.Addr, error) {
	first := r.opts.PodCIDR.Masked().Addr().Next()
	// after the last result, so that a released address is reused late
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
