// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
)

// containerKey identifies a container of a pod.
type containerKey struct{ uid, container string }

// listRunning returns the containers that run or are about to run, for the writer: those of the runtime's list, and those of PrepareStart that the list
// does not have yet. Before the containers were listed, Reserve waits. The slice is valid until the next call.
func (p *Placement) listRunning(context.Context) ([]cpus.RunningContainer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pods, err := p.opts.Containers.Pods()
	if err != nil {
		pods = nil // the generator reports its errors
	}
	p.listed = p.appendRunning(p.listed[:0], pods)
	if len(p.starting) == 0 {
		return p.listed, nil
	}
	isListed := map[string]bool{}
	for i := range pods {
		for j := range pods[i].Containers { // in any state: a container that has exited is not about to run
			isListed[pods[i].Containers[j].ID] = true
		}
	}
	p.starting = slices.DeleteFunc(p.starting, func(c cpus.RunningContainer) bool { return isListed[c.ID] })
	p.listed = append(p.listed, p.starting...)
	return p.listed, nil
}

// appendRunning appends the containers of the agent's pods that run or are about to run to list.
func (p *Placement) appendRunning(list []cpus.RunningContainer, pods []cri.Pod) []cpus.RunningContainer {
	for i := range pods {
		if p.opts.Owns != nil && !p.opts.Owns(&pods[i]) {
			continue
		}
		for j := range pods[i].Containers {
			if c := &pods[i].Containers[j]; c.State == cri.ContainerRunning || c.State == cri.ContainerCreated {
				list = append(list, cpus.RunningContainer{ID: c.ID, PodUID: pods[i].UID, Container: c.Name, Created: c.State == cri.ContainerCreated})
			}
		}
	}
	return list
}

// writeCPUs sets the CPUs of a container. A container that no longer exists is no error.
func (p *Placement) writeCPUs(ctx context.Context, id string, set topology.CPUSet) error {
	if p.opts.Updater == nil {
		return fmt.Errorf("set the CPUs of a container: %w", errors.ErrUnsupported)
	}
	err := p.opts.Updater.UpdateContainer(ctx, id, &cri.Resources{CpusetCPUs: set.String()}, nil)
	if !errors.Is(err, cri.ErrNotFound) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting = slices.DeleteFunc(p.starting, func(c cpus.RunningContainer) bool { return c.ID == id })
	return nil
}

// PrepareStart writes the CPUs of a container to the runtime, if they have changed since the call of Container. Call it between creation and start. From this
// call on, a Reserve that takes CPUs of the container waits until the container has left them, although Options.Containers may not list it yet.
// After an error, do not start the container. PrepareStart implements lifecycle.StartPreparer.
func (p *Placement) PrepareStart(ctx context.Context, pod *corev1.Pod, container *corev1.Container, id string) error {
	key := containerKey{string(pod.UID), container.Name}
	p.mu.Lock()
	given, wasGiven := p.launched[key]
	delete(p.launched, key)
	if !wasGiven && !p.hasCpusets() {
		p.mu.Unlock()
		return nil // containers run on all CPUs
	}
	p.starting = append(p.starting, cpus.RunningContainer{ID: id, PodUID: key.uid, Container: key.container, Created: true})
	p.mu.Unlock()
	if p.opts.Kubelet.LateShared {
		return nil
	}
	// The state is read after the container is in p.starting: a pass of the writer for a later state finds the container there. The state is read again
	// after each write, because such a pass may have written the CPUs of the later state before.
	for {
		set, _ := p.allocator.CPUs(key.uid, key.container)
		if set == given {
			return nil
		}
		if err := p.writeCPUs(ctx, id, set); err != nil {
			return err
		}
		given = set
	}
}

// hasCpusets reports whether containers have CPUs of the state.
func (p *Placement) hasCpusets() bool {
	return p.opts.Policy.Name() == cpus.PolicyStatic || len(p.allocator.State().Assigned) > 0
}
