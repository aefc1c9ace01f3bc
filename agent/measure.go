// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/seed81659283/nodeagent/internal/volumestats"
	"github.com/seed81659283/nodeagent/stats"
)

// measure makes the collector that measures the node and its pods, for evictions and for the API of the node.
func (a *Agent) measure() (err error) {
	o := stats.Options{
		NodeName: a.config.Node.NodeName, Machine: a.cgroups.machine, Root: a.config.Node.RootDir, LogRoot: a.config.Kubelet.PodLogsDir,
		Volumes: a.measuredVolumes, Logger: a.log,
	}
	if thresholds, _ := a.config.Kubelet.Thresholds(); len(thresholds) > 0 { // a pod may fill a disk in less than the default minute
		o.Period = 10 * time.Second
	}
	if a.collector, err = stats.New(a.cgroups.driver, a.client, o); err != nil {
		return err
	}
	a.recent = a.collector.Recent(pagesMaxAge)
	a.add("statistics", a.collector.Run)
	return nil
}

// measuredVolumes returns the volumes of a pod whose usage is measured.
func (a *Agent) measuredVolumes(uid string) []stats.Volume {
	state, ok := a.pods.Pod(uid)
	if !ok || state.Spec == nil || a.volumes == nil {
		return nil
	}
	return volumestats.Of(a.config.Node.RootDir, state.Spec, a.volumes)
}
