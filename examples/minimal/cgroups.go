// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/qos"
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
	memory, swap, err := memoryOfHost()
	if err != nil {
		return nil, err
	}
	pids, err := podtree.MaxPIDs(os.DirFS("/proc"))
	if err != nil {
		return nil, err
	}
	d, err := driver.Open(ctx, driver.Options{Root: c.cgroupRoot, Systemd: names == cri.CgroupDriverSystemd, Logger: c.log})
	if err != nil {
		return nil, err
	}
	host := d.Host()
	o.Spec.Node = &qos.Node{
		MemoryCapacity: memory, SwapCapacity: swap,
		CgroupV1: host.Mode != driver.V2, NoSwapController: !host.Has("swap"), HugepageSizes: host.HugepageSizes,
	}
	tree := &podCgroups{driver: d, pods: &podsOf{}}
	tree.Tree, err = podtree.New(d, tree.pods, podtree.Options{
		Node: *o.Spec.Node, MaxPIDs: pids, Logger: c.log,
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		},
	})
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

// memoryOfHost returns the bytes of memory and of swap.
func memoryOfHost() (memory, swap int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	for line := range bytes.Lines(text) {
		var name string
		var kilobytes int64
		_, _ = fmt.Sscan(string(line), &name, &kilobytes)
		switch name {
		case "MemTotal:":
			memory = kilobytes << 10
		case "SwapTotal:":
			swap = kilobytes << 10
		}
	}
	return memory, swap, nil
}
