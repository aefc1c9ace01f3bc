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

// Setup makes the network namespace of a sandbox and attaches it to the networks of pods. If that fails it is undone, also
// when ctx has ended; what cannot be undone now is torn down by the next Retain, or by a Teardown of the same sandbox.
func (p *Pods) Setup(ctx context.Context, pod Pod) (*PodStatus, error) {
	status, err := p.setup(ctx, pod)
	if err != nil {
		return nil, fmt.Errorf("set up network of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return status, nil
}

func (p *Pods) setup(ctx context.Context, pod Pod) (*PodStatus, error) {
	networks, err := p.networks()
	if err != nil {
		return nil, err
	}
	r, err := newRecord(pod, networks)
	if err != nil {
		return nil, err
	}
	for _, n := range networks { // before anything would have to be undone by a plugin that is missing
		if err := p.plugins.find(n); err != nil {
			return nil, newError("ADD", n, Attachment{}, err)
		}
	}
	leave, err := p.enter(ctx, pod.SandboxID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if p.isMine(pod.SandboxID) {
		return nil, fmt.Errorf("sandbox %s: %w", pod.SandboxID, fs.ErrExist)
	}
	if p.known(pod.SandboxID) { // set up by an agent that was killed
		if err := p.teardown(ctx, pod.SandboxID); err != nil {
			return nil, err
		}
	}
	if err := p.claim(ctx, r); err != nil {
		return nil, err
	}
	status, err := p.attach(ctx, r)
	if err != nil {
		err = errors.Join(err, p.teardown(context.WithoutCancel(ctx), pod.SandboxID))
		p.disclaim(pod.SandboxID)
	}
	return status, err
}

// known reports whether something is there of a sandbox.
func (p *Pods) known(sandbox string) bool {
	for _, path := range []string{p.records.path(sandbox), p.spaces.Path(sandbox)} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// attach does what a record says. The record comes first, so that whatever happens is known.
func (p *Pods) attach(ctx context.Context, r *record) (*PodStatus, error) {
	if err := p.records.write(r); err != nil {
		return nil, err
	}
	path, err := p.spaces.Create(r.Sandbox)
	if err != nil {
		return nil, err
	}
	all, err := r.attachments(path)
	if err != nil {
		return nil, err
	}
	status := &PodStatus{Netns: path}
	for _, a := range all {
		result, err := p.plugins.Add(ctx, a.network, a.attachment)
		if err != nil {
			return nil, err
		}
		status.add(a, result, p.opts.Prefer)
	}
	if len(status.IPs) == 0 {
		return nil, fmt.Errorf("network %q has given interface %s no address", all[0].network.Name, all[0].attachment.Interface)
	}
	return status, nil
}

// Teardown detaches a sandbox from its networks, with the configuration that it was attached with, and removes its network
// namespace. It succeeds where there is nothing to tear down. After an error it is to be called again: what could not be
// detached, and the namespace, stay until then.
func (p *Pods) Teardown(ctx context.Context, sandboxID string) error {
	leave, err := p.enter(ctx, sandboxID)
	if err != nil {
		return fmt.Errorf("tear down network of sandbox %s: %w", sandboxID, err)
	}
	defer leave()
	if err := p.teardown(ctx, sandboxID); err != nil {
		return fmt.Errorf("tear down network of sandbox %s: %w", sandboxID, err)
	}
	p.disclaim(sandboxID)
	return nil
}

// teardown is Teardown of a sandbox that no other call works on.
func (p *Pods) teardown(ctx context.Context, sandbox string) error {
	all, damaged, err := p.attachments(sandbox)
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
	if err := p.spaces.Remove(sandbox); err != nil {
		return err
	}
	return errors.Join(damaged, p.records.remove(sandbox))
}

// attachments returns what is known of the attachments of a sandbox: from its record or, without a record that can be read,
// from libcni's cache, which has those whose ADD has succeeded.
func (p *Pods) attachments(sandbox string) (all []networkAttachment, damaged, err error) {
	path := ""
	if p.spaces.Pinned(sandbox) {
		path = p.spaces.Path(sandbox)
	}
	r, err := p.records.read(sandbox)
	if err == nil {
		all, err = r.attachments(path)
		return all, nil, err
	}
	if _, ok := errors.AsType[*damagedError](err); ok {
		damaged = err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	cached, err := p.plugins.cached(sandbox)
	for _, a := range cached {
		a.attachment.Netns = path
		all = append(all, a)
	}
	return all, damaged, err
}

// Check reports an error if the network of a sandbox is not as its set-up has left it.
func (p *Pods) Check(ctx context.Context, sandboxID string) error {
	if err := p.check(ctx, sandboxID); err != nil {
		return fmt.Errorf("check network of sandbox %s: %w", sandboxID, err)
	}
	return nil
}

func (p *Pods) check(ctx context.Context, sandbox string) error {
	leave, err := p.enter(ctx, sandbox)
	if err != nil {
		return err
	}
	defer leave()
	r, err := p.records.read(sandbox)
	if err != nil {
		return cause(err)
	}
	if !p.spaces.Pinned(sandbox) {
		return fmt.Errorf("network namespace %s: %w", p.spaces.Path(sandbox), fs.ErrNotExist)
	}
	all, err := r.attachments(p.spaces.Path(sandbox))
	errs := []error{err}
	for _, a := range all {
		errs = append(errs, p.plugins.Check(ctx, a.network, a.attachment))
	}
	return errors.Join(errs...)
}
