// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Setup creates the network namespace of a sandbox, and attaches it to the pod networks. On error it removes everything,
// even if ctx has ended. If that fails, [Pods.Retain] or [Pods.Teardown] does it later.
func (p *Pods) Setup(ctx context.Context, pod Pod) (*PodStatus, error) {
	status, err := p.setUpPod(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("set up network of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return status, nil
}

func (p *Pods) setUpPod(ctx context.Context, pod Pod) (*PodStatus, error) {
	networks, err := p.podNetworks()
	if err != nil {
		return nil, err
	}
	r, err := newRecord(pod, networks)
	if err != nil {
		return nil, err
	}
	for _, n := range networks { // before a missing plugin would require an undo
		if err := p.plugins.checkPlugins(n); err != nil {
			return nil, newError("ADD", n, Attachment{}, err)
		}
	}
	unlock, err := p.lockSandbox(ctx, pod.SandboxID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p.isOwn(pod.SandboxID) {
		return nil, fmt.Errorf("sandbox %s: %w", pod.SandboxID, fs.ErrExist)
	}
	if p.hasRemains(pod.SandboxID) { // set up by an agent that was killed
		if err := p.tearDownPod(ctx, pod.SandboxID); err != nil {
			return nil, err
		}
	}
	if err := p.addOwn(ctx, r); err != nil {
		return nil, err
	}
	status, err := p.attachPod(ctx, r)
	if err != nil {
		err = errors.Join(err, p.tearDownPod(context.WithoutCancel(ctx), pod.SandboxID))
		p.removeOwn(pod.SandboxID)
	}
	return status, err
}

// hasRemains reports whether a record or a network namespace of the sandbox exists. It also returns true if this is unknown
// because of an error.
func (p *Pods) hasRemains(sandbox string) bool {
	for _, path := range []string{p.records.recordPath(sandbox), p.namespaces.Path(sandbox)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// attachPod writes the record, creates the network namespace and runs ADD for each attachment.
func (p *Pods) attachPod(ctx context.Context, rec *record) (*PodStatus, error) {
	// first, so that a restarted agent finds the record and removes the namespace and the attachments
	if err := p.records.writeRecord(rec); err != nil {
		return nil, err
	}
	path, err := p.namespaces.Create(rec.Sandbox)
	if err != nil {
		return nil, err
	}
	all, err := rec.parseAttachments(path)
	if err != nil {
		return nil, err
	}
	status := &PodStatus{Netns: path}
	for _, a := range all {
		result, err := p.plugins.Add(ctx, a.network, a.attachment)
		if err != nil {
			return nil, err
		}
		status.addNetwork(a, result, p.opts.PreferFamily)
	}
	if len(status.IPs) == 0 {
		return nil, fmt.Errorf("network %q assigned no address to interface %s", all[0].network.Name, all[0].attachment.Interface)
	}
	return status, nil
}

// Teardown detaches a sandbox from its networks and removes its network namespace. It uses the configuration from
// [Pods.Setup]. If there is nothing to tear down, it succeeds. After an error, the caller must repeat it.
func (p *Pods) Teardown(ctx context.Context, sandboxID string) error {
	unlock, err := p.lockSandbox(ctx, sandboxID)
	if err != nil {
		return fmt.Errorf("tear down network of sandbox %s: %w", sandboxID, err)
	}
	defer unlock()
	if err := p.tearDownPod(ctx, sandboxID); err != nil {
		return fmt.Errorf("tear down network of sandbox %s: %w", sandboxID, err)
	}
	p.removeOwn(sandboxID)
	return nil
}

// tearDownPod tears down the network of a sandbox like [Pods.Teardown]. The caller has locked the sandbox.
func (p *Pods) tearDownPod(ctx context.Context, sandbox string) error {
	all, damaged, err := p.findAttachments(sandbox)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range slices.Backward(all) {
		errs = append(errs, p.plugins.Del(ctx, a.network, a.attachment))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := p.namespaces.Remove(sandbox); err != nil {
		return err
	}
	return errors.Join(damaged, p.records.removeRecord(sandbox))
}

// findAttachments returns the attachments of a sandbox from its record, or else from libcni's cache. damaged is set if the
// record cannot be parsed.
func (p *Pods) findAttachments(sandbox string) (all []networkAttachment, damaged, err error) {
	path := ""
	if p.namespaces.Pinned(sandbox) {
		path = p.namespaces.Path(sandbox)
	}
	r, err := p.records.readRecord(sandbox)
	if err == nil {
		all, err = r.parseAttachments(path)
		return all, nil, err
	}
	if _, ok := errors.AsType[*damagedError](err); ok {
		damaged = err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	cached, err := p.plugins.cachedAttachments(sandbox) // has the result of each successful ADD
	for _, a := range cached {
		a.attachment.Netns = path
		all = append(all, a)
	}
	return all, damaged, err
}

// Check returns an error if the network of a sandbox has changed since Setup.
func (p *Pods) Check(ctx context.Context, sandboxID string) error {
	if err := p.checkPod(ctx, sandboxID); err != nil {
		return fmt.Errorf("check network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

func (p *Pods) checkPod(ctx context.Context, sandbox string) error {
	unlock, err := p.lockSandbox(ctx, sandbox)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := p.records.readRecord(sandbox)
	if err != nil {
		return stripPath(err)
	}
	if !p.namespaces.Pinned(sandbox) {
		return fmt.Errorf("network namespace %s: %w", p.namespaces.Path(sandbox), fs.ErrNotExist)
	}
	all, err := r.parseAttachments(p.namespaces.Path(sandbox))
	errs := []error{err}
	for _, a := range all {
		errs = append(errs, p.plugins.Check(ctx, a.network, a.attachment))
	}
	return errors.Join(errs...)
}
