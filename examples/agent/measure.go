// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

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
	o := nodestats.Options{NodeName: a.NodeName, Machine: a.machine, Root: a.StateDir, LogRoot: a.LogDir, Volumes: a.mounted, Logger: a.log}
	if a.evicts() {
		o.Period = 10 * time.Second // or who fills a disk in less than a minute is not seen to
	}
	if a.collector, err = nodestats.New(d, a.client, o); err != nil {
		return err
	}
	a.recent = a.collector.Recent(pagesMaxAge)
	a.parts = append(a.parts, a.collector.Run)
	return nil
}

// mounted are the volumes of a pod: those of the pod alone, and claims. A CSI driver is asked for what it has made, the size of a block
// device is that of the device, and of any other claim the file system is asked. A directory of the host is not measured.
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
		place, ok := places[v.Name]
		name, claimed := claim.Of(state.Spec, v)
		if !ok || place.Plugin == volume.HostPath || !claimed && place.Plugin != volume.CSI {
			continue
		}
		it := nodestats.Volume{Name: v.Name, Path: place.Path, Mounted: true}
		if claimed {
			it.PVC = &statsapi.PVCReference{Namespace: state.Spec.Namespace, Name: name}
		}
		if place.Plugin == volume.CSI || place.Block {
			it.Measure = func(ctx context.Context) (statsapi.FsStats, error) { return a.usage(ctx, uid, v.Name) }
		}
		list = append(list, it)
	}
	return list
}

// usage asks the plugin of a volume how much it takes.
func (a *agent) usage(ctx context.Context, uid, name string) (statsapi.FsStats, error) {
	u, err := a.volumes.Usage(ctx, uid, name)
	return statsapi.FsStats{
		UsedBytes: &u.UsedBytes, CapacityBytes: &u.CapacityBytes, AvailableBytes: &u.AvailableBytes,
		InodesUsed: &u.UsedInodes, Inodes: &u.Inodes, InodesFree: &u.FreeInodes,
	}, err
}
