// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
)

// isolate gives pods the user namespaces and the cgroups that the runtime supports.
func (a *Agent) isolate(ctx context.Context, o *lifecycle.Options) error {
	if a.client == nil {
		return nil
	}
	status, err := a.client.Status(ctx)
	if err != nil {
		return err
	}
	o.Spec.Handlers = func() []cri.RuntimeHandler { return status.Handlers }
	ranges, err := userns.New(o.Dirs.Pods, userns.Options{})
	if err != nil {
		return err
	}
	o.Spec.UserNamespace = ranges.Of
	if !*a.config.Kubelet.CgroupsPerQOS {
		return nil
	}
	return a.makeCgroups(ctx, o)
}

// makeCgroups makes the cgroups of pods, named for the cgroup driver of the runtime, for a node that is the whole machine.
func (a *Agent) makeCgroups(ctx context.Context, o *lifecycle.Options) error {
	names, err := a.client.CgroupDriver(ctx)
	if err != nil {
		return err
	}
	host, err := podtree.HostOptions(os.DirFS("/proc"))
	if err != nil {
		return err
	}
	k, c := &a.config.Kubelet, &a.cgroups
	c.slices = names == cri.CgroupDriverSystemd
	if c.driver, err = driver.Open(ctx, driver.Options{Root: k.CgroupRoot, Systemd: c.slices, Logger: a.log}); err != nil {
		return err
	}
	if c.machine = c.driver; k.CgroupRoot != "/" {
		if c.machine, err = driver.Open(ctx, driver.Options{Logger: a.log}); err != nil {
			return err
		}
	}
	version := 2
	if host.Node.CgroupV1 {
		version = 1
	}
	host.Hooks = a.meter.Cgroups(version, a.options.Hooks.Cgroups)
	reserved, _ := k.Reserved()                                                    // validated
	host.Reserved = podtree.Reserved{System: reserved.System, Kube: reserved.Kube} // pods may use the memory that evictionHard keeps free
	found := c.driver.Host()
	host.Logger, host.Node.HugepageSizes = a.log, found.HugepageSizes
	host.Node.NoSwapController, host.Node.NoHugetlbController = !found.Has("swap"), !found.Has("hugetlb")
	if c.tree, err = podtree.New(c.driver, nil, host); err != nil { // the reconciler follows the pods of the tree
		return err
	}
	a.setUp, o.Cgroups = c.tree.Setup, c.tree
	a.add("cgroups of pods", c.tree.Run)
	return a.measure()
}
