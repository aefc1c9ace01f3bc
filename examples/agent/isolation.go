// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
)

// isolate gives pods the cgroups and the user namespaces that the runtime can put them in.
func (a *agent) isolate(ctx context.Context, o *lifecycle.Options) error {
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
	if a.CgroupRoot == "" {
		return nil
	}
	return a.limit(ctx, o)
}

// limit makes the cgroups of pods, named as the runtime takes them, for a node that is the whole machine.
func (a *agent) limit(ctx context.Context, o *lifecycle.Options) error {
	names, err := a.client.CgroupDriver(ctx)
	if err != nil {
		return err
	}
	host, err := podtree.HostOptions(os.DirFS("/proc"))
	if err != nil {
		return err
	}
	d, err := driver.Open(ctx, driver.Options{Root: a.CgroupRoot, Systemd: names == cri.CgroupDriverSystemd, Logger: a.log})
	if err != nil {
		return err
	}
	found := d.Host()
	a.slices = names == cri.CgroupDriverSystemd
	host.Reserved = podtree.Reserved{System: a.SystemReserved, Kube: a.KubeReserved} // pods may use what evictionHard keeps free
	version := 2
	if host.Node.CgroupV1 {
		version = 1
	}
	host.Hooks = a.meter.Cgroups(version)
	host.Logger, host.Node.HugepageSizes = a.log, found.HugepageSizes
	host.Node.NoSwapController, host.Node.NoHugetlbController = !found.Has("swap"), !found.Has("hugetlb")
	tree, err := podtree.New(d, nil, host) // the reconciler has it follow its pods
	if err != nil {
		return err
	}
	a.tree = tree
	if err := a.gauge(ctx, d); err != nil {
		return err
	}
	if err := a.evictUnder(o); err != nil {
		return err
	}
	a.setUp = tree.Setup
	a.parts = append(a.parts, tree.Run)
	o.Cgroups = tree
	return nil
}
