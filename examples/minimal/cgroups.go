// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// podCgroups is the cgroups of the pods; a nil one is of an agent that leaves them to the runtime.
type podCgroups struct {
	*podtree.Tree
	driver *driver.Driver
	pods   *podsOf
}

// podsOf is the reconciler, which is made after the tree that asks it.
type podsOf struct{ *lifecycle.Reconciler }

// openCgroups makes a tree below the root, with names as the runtime takes them, for a node that is the whole machine,
// and tells the options of the reconciler.
func (c config) openCgroups(ctx context.Context, rt cri.Runtime, o *lifecycle.Options) (*podCgroups, error) {
	if c.endpoint == "" || c.cgroupRoot == "" {
		return nil, nil
	}
	reporter, ok := rt.(cri.StatusReporter)
	if !ok {
		return nil, errors.New("the runtime does not say how it names cgroups")
	}
	names, err := reporter.CgroupDriver(ctx)
	if err != nil {
		return nil, err
	}
	host, err := podtree.HostOptions(os.DirFS("/proc"))
	if err != nil {
		return nil, err
	}
	d, err := driver.Open(ctx, driver.Options{Root: c.cgroupRoot, Systemd: names == cri.CgroupDriverSystemd, Logger: c.log})
	if err != nil {
		return nil, err
	}
	found := d.Host()
	host.Node.CgroupV1, host.Node.NoSwapController = found.Mode != driver.V2, !found.Has("swap")
	host.Node.HugepageSizes, host.Logger = found.HugepageSizes, c.log
	o.Spec.Node = &host.Node
	tree := &podCgroups{driver: d, pods: &podsOf{}}
	tree.Tree, err = podtree.New(d, tree.pods, host)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	o.Cgroups = tree
	o.Spec.CgroupParent = func(pod *corev1.Pod) string {
		name, _ := d.Name(tree.Path(pod)) // Ensure has refused what has no name
		return name
	}
	return tree, nil
}

func (t *podCgroups) setup(ctx context.Context, r *lifecycle.Reconciler) error {
	if t == nil {
		return nil
	}
	t.pods.Reconciler = r
	return t.Setup(ctx)
}

func (t *podCgroups) run(ctx context.Context) {
	if t != nil {
		_ = t.Run(ctx)
	}
}

func (t *podCgroups) close() {
	if t != nil {
		_ = t.driver.Close()
	}
}
