// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	nodestats "github.com/seed81659283/nodeagent/nodestatus/summary"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/claim"
)

// gauge makes what measures the node and its pods, for evictions and for the agent's own API. d is on the cgroup that kubepods is in.
func (a *agent) gauge(ctx context.Context, d *driver.Driver) (err error) {
	a.driver, a.machine = d, d
	if a.CgroupRoot != "/" {
		if a.machine, err = driver.Open(ctx, driver.Options{Logger: a.log}); err != nil {
			return err
		}
	}
	o := nodestats.Options{NodeName: a.NodeName, Root: a.StateDir, LogRoot: a.LogDir, Volumes: a.mounted, Logger: a.log}
	if a.evicts() {
		o.Period = 10 * time.Second // or who fills a disk in less than a minute is not seen to
	}
	if a.collector, err = nodestats.New(wholeMachine{d, a.machine}, a.client, o); err != nil {
		return err
	}
	a.parts = append(a.parts, a.collector.Run)
	return nil
}

// wholeMachine has the cgroups below one, and that of the machine as their top, as the node is the machine whatever cgroup its pods
// are in.
type wholeMachine struct {
	*driver.Driver
	machine *driver.Driver
}

// Sample implements [cgroups.Sampler].
func (w wholeMachine) Sample(ctx context.Context, p cgroups.Path, leaf string, parts cgroups.Parts) (cgroups.Stats, error) {
	if p == "" && leaf == "" {
		return w.machine.Sample(ctx, p, leaf, parts)
	}
	return w.Driver.Sample(ctx, p, leaf, parts)
}

// mounted are the volumes of a pod: those of the pod alone, and claims. Of a claim its file system is asked, as the kubelet asks it
// itself, or has its driver ask it. A directory of the host is measured by neither.
func (a *agent) mounted(uid string) []nodestats.Volume {
	state, ok := a.Pod(uid)
	if !ok || state.Spec == nil {
		return nil
	}
	list := nodestats.VolumesOf(a.StateDir, state.Spec)
	if a.volumes == nil {
		return list
	}
	places := a.volumes.Places(uid)
	for i := range state.Spec.Spec.Volumes {
		v := &state.Spec.Spec.Volumes[i]
		name, claimed := claim.Of(state.Spec, v)
		if place, ok := places[v.Name]; ok && claimed && place.Plugin != volume.HostPath {
			ref := &statsapi.PVCReference{Namespace: state.Spec.Namespace, Name: name}
			list = append(list, nodestats.Volume{Name: v.Name, Path: place.Path, Mounted: true, PVC: ref})
		}
	}
	return list
}
