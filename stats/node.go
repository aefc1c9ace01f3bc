// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"path"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// sampled is a cgroup with what the kernel counts for it.
type sampled struct {
	path  cgroups.Path
	leaf  string
	found bool
	at    time.Time
	stats cgroups.Stats
}

// theNode is the name of the cgroup of the whole node among those of [nodeSample]. No system container has it.
const theNode = ""

// nodeSample is what is known of the node.
type nodeSample struct {
	cgroups    map[string]sampled // by the name of the system container
	memory     memory
	memoryOK   bool
	tasks      int64
	maxTasks   int64
	tasksAt    time.Time // zero: not known
	interfaces []Interface
	networkAt  time.Time
	booted     time.Time

	root, image, layer    *measured // file systems; nil: not known
	images, layers        cri.FilesystemUsage
	imagesKnown, separate bool // separate: layers are on another mount point than images
}

// node reads what there is of the node but its disks.
func (k *Collector) node(ctx context.Context, parts cgroups.Parts, network bool, f *failures) nodeSample {
	n := nodeSample{cgroups: map[string]sampled{}, booted: k.boot(f)}
	n.cgroups[theNode] = k.sample(ctx, "", "", parts, f)
	pods := cgroups.QOSPath(k.opts.CgroupRoot, cgroups.Guaranteed)
	n.cgroups[statsapi.SystemContainerPods] = k.sample(ctx, pods, "", parts, f)
	for _, s := range k.opts.System {
		n.cgroups[s.Name] = k.sample(ctx, s.Path, s.Leaf, parts, f)
	}
	k.machine(&n, f)
	if network {
		at := time.Now()
		all, err := k.proc.interfaces("1")
		if f.add("proc", "1/net/dev", err); err == nil {
			n.interfaces, n.networkAt = all, at
		}
	}
	return n
}

// machine reads the files of /proc that [Collector.Signals] reads too.
func (k *Collector) machine(n *nodeSample, f *failures) {
	var err error
	n.memory, err = k.proc.memory()
	n.memoryOK = err == nil
	f.add("proc", "", err)
	at := time.Now()
	if n.tasks, n.maxTasks, err = k.proc.tasks(); err == nil {
		n.tasksAt = at
	}
	f.add("proc", "", err)
}

// sample reads a cgroup. One that is not there is no failure.
func (k *Collector) sample(ctx context.Context, p cgroups.Path, leaf string, parts cgroups.Parts, f *failures) sampled {
	s := sampled{path: p, leaf: leaf, at: time.Now()}
	var err error
	var from cgroups.Sampler = k.cgroups
	if p == "" && leaf == "" {
		from = k.opts.Machine
	}
	s.stats, err = from.Sample(ctx, p, leaf, parts)
	if s.found = err == nil; !gone(err) {
		f.add("cgroup", path.Join(p.Cgroupfs(), leaf), err)
	}
	return s
}

// boot returns when the machine was started, which never changes.
func (k *Collector) boot(f *failures) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.booted.IsZero() {
		var err error
		k.booted, err = k.proc.boot()
		f.add("proc", "", err)
	}
	return k.booted
}

// nodeDisks asks the file systems of the node, and the runtime where it keeps what.
func (k *Collector) nodeDisks(ctx context.Context, n *nodeSample, f *failures) {
	u, err := k.imageUsage(ctx, k.opts.RuntimePeriod, k.opts.Timeout)
	if err != nil {
		f.add("runtime", "image usage", err)
	}
	k.askDisks(ctx, n, u, k.opts.Timeout, f)
}

// askDisks asks the file systems at the same time, so that none delays another one.
func (k *Collector) askDisks(ctx context.Context, n *nodeSample, u cri.ImageUsage, wait time.Duration, f *failures) {
	if len(u.Images) > 0 {
		n.images, n.layers, n.imagesKnown = u.Images[0], u.Images[0], true
		if len(u.Containers) > 0 && u.Containers[0].Mountpoint != n.images.Mountpoint {
			n.layers, n.separate = u.Containers[0], true
		}
	}
	ask := []diskQuestion{{"nodefs", k.opts.Root, &n.root, k.disks.begin(k.opts.Root)}}
	if n.imagesKnown {
		at := n.images.Mountpoint
		ask = append(ask, diskQuestion{"imagefs", at, &n.image, k.disks.begin(at)})
	}
	if n.separate {
		at := n.layers.Mountpoint
		ask = append(ask, diskQuestion{"containerfs", at, &n.layer, k.disks.begin(at)})
	}
	for _, a := range ask {
		m, err := k.disks.ask(ctx, a.call, wait)
		if f.add(a.source, a.path, err); err == nil {
			*a.into = &m
		}
	}
	if !n.separate {
		n.layer = n.image
	}
}

// diskQuestion is a file system that was asked, and where its answer goes.
type diskQuestion struct {
	source, path string
	into         **measured
	call         *pending[measured]
}

// imageUsage returns where the runtime keeps images and layers, and what they take; what it said last where it does not
// answer.
func (k *Collector) imageUsage(ctx context.Context, age, wait time.Duration) (cri.ImageUsage, error) {
	last, at := k.usage.known()
	if k.images == nil || !at.IsZero() && time.Since(at) < age {
		return last, nil
	}
	u, err := k.usage.ask(ctx, wait, func() (cri.ImageUsage, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*k.opts.Timeout)
		defer cancel()
		u, err := k.images.ImageUsage(ctx)
		if err == nil && len(u.Images) == 0 {
			err = errors.New("it names no file system of images")
		}
		return u, err
	})
	if err != nil {
		return last, err
	}
	return u, nil
}
