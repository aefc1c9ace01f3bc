// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/volumestats"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
	"github.com/seed81659283/nodeagent/stats"
)

// createPodParts creates the parts for user namespaces, cgroups and volumes. With Options.Runtime, cgroups and volumes are those of Options.
func (a *Agent) createPodParts(ctx context.Context, opts *lifecycle.Options) error {
	if a.client == nil && !*a.config.Kubelet.CgroupsPerQOS {
		if opts.Volumes = a.options.Volumes; a.options.Cgroups == nil {
			return nil
		}
		a.cgroups.driver, a.cgroups.machine = a.options.Cgroups, a.options.Cgroups
		return a.createCgroupTree(opts, podtree.MachineOptions(a.machine.CPUs, a.machine.Memory, a.machine.Swap))
	}
	if *a.config.Kubelet.CgroupsPerQOS {
		if err := a.openCgroups(ctx, opts); err != nil {
			return err
		}
	}
	if a.client == nil { // plain processes with cgroups
		return a.createCollector()
	}
	status, err := a.client.Status(ctx)
	if err != nil {
		return err
	}
	opts.Spec.RuntimeHandlers = func() []cri.RuntimeHandler { return status.Handlers }
	ranges, err := userns.New(opts.Dirs.Pods, userns.Options{})
	if err != nil {
		return err
	}
	opts.Spec.UserNamespace = ranges.Assign
	if err := a.createVolumes(ctx, opts); err != nil || a.cgroups.tree == nil {
		return err
	}
	return a.createCollector()
}

// openCgroups opens the cgroups of this machine, with names in the format of the runtime's cgroup driver, and creates the cgroup tree of pods.
func (a *Agent) openCgroups(ctx context.Context, opts *lifecycle.Options) error {
	names, err := a.config.Kubelet.RuntimeCgroupDriver(ctx, a.runtime.(cri.StatusReporter))
	if err != nil {
		return err
	}
	host, err := podtree.HostOptions(os.DirFS("/proc"))
	if err != nil {
		return err
	}
	k, c := &a.config.Kubelet, &a.cgroups
	c.systemd = names == cri.CgroupDriverSystemd
	pods, err := driver.Open(ctx, driver.Options{Root: k.CgroupRoot, Systemd: c.systemd, Logger: a.log})
	if err != nil {
		return err
	}
	if c.driver, c.machine = pods, pods; k.CgroupRoot != "/" {
		if c.machine, err = driver.Open(ctx, driver.Options{Logger: a.log}); err != nil {
			return err
		}
	}
	found := pods.Host()
	host.Node.HugepageSizes = found.HugepageSizes
	host.Node.NoSwapController, host.Node.NoHugetlbController = !found.HasController("swap"), !found.HasController("hugetlb")
	return a.createCgroupTree(opts, host)
}

// createCgroupTree creates the tree of cgroups, with options host. The tree creates, updates and removes the cgroups of pods.
func (a *Agent) createCgroupTree(opts *lifecycle.Options, host podtree.Options) (err error) {
	a.config.Kubelet.LimitPods(&host, a.node.Initial)
	host.Node.ExclusiveCPUs = func(pod *corev1.Pod, container string) bool { return a.placed.HasExclusiveCPUs(pod, container) }
	host.Logger, host.Hooks = a.log, a.metrics.Cgroups(host.Node.CgroupVersion(), a.options.Hooks.Cgroups)
	if a.cgroups.tree, err = podtree.New(a.cgroups.driver, nil, host); err != nil { // the reconciler follows the pods of the tree
		return err
	}
	a.prepare, opts.Cgroups = a.cgroups.tree.Setup, a.cgroups.tree
	a.parts.Add("cgroups of pods", a.cgroups.tree.Run)
	return nil
}

// createCollector creates the collector of CPU, memory and disk usage of the node and its pods, for evictions and for the API of the node.
func (a *Agent) createCollector() (err error) {
	rootDir := a.config.Node.RootDir
	o := stats.Options{
		NodeName: a.config.Node.NodeName, Machine: a.cgroups.machine, Root: rootDir, LogRoot: a.config.Kubelet.PodLogsDir, Logger: a.log,
	}
	var measured bool
	if o.VolumePeriod, measured = a.config.Kubelet.VolumePeriod(); measured && a.volumes != nil { // plain processes have no volumes
		o.Volumes = volumestats.OfPods(rootDir, &a.pods, a.volumes)
	}
	if a.collector, err = stats.New(a.cgroups.driver, a.runtime, o); err != nil {
		return err
	}
	a.cachedStats = a.collector.Cached(pagesMaxAge)
	a.parts.Add("statistics", a.collector.Run)
	return nil
}
