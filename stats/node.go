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

// cgroupSample has the counters of a cgroup at one time. The field found is false if the cgroup could not be read.
type cgroupSample struct {
	path  cgroups.Path
	leaf  string
	found bool
	at    time.Time
	stats cgroups.Stats
}

// nodeCgroup is the key of the root cgroup in [nodeSample]. System containers have other names.
const nodeCgroup = ""

// nodeSample has the measured values of a node. Summaries, eviction signals and samples are built from it.
type nodeSample struct {
	cgroups    map[string]cgroupSample // by name of the system container
	memory     meminfo
	memoryOK   bool
	tasks      int64
	maxTasks   int64
	tasksAt    time.Time // zero: not read
	interfaces []Interface
	networkAt  time.Time
	bootTime   time.Time

	root, image, layer          *fsMeasurement // file systems; nil: unknown
	images, layers              cri.FilesystemUsage
	imagesKnown, separateLayers bool // separateLayers: layers have another mount point than images
}

// sampleNode reads the values of the node except its file systems: these counters of cgroups, and network traffic if network is
// true. It adds errors to errs.
func (k *Collector) sampleNode(ctx context.Context, parts cgroups.Parts, network bool, errs *failures) nodeSample {
	n := nodeSample{cgroups: map[string]cgroupSample{}, bootTime: k.readBootTime(errs)}
	n.cgroups[nodeCgroup] = k.sampleCgroup(ctx, "", "", parts, errs)
	pods := cgroups.QOSPath(k.opts.CgroupRoot, cgroups.Guaranteed)
	n.cgroups[statsapi.SystemContainerPods] = k.sampleCgroup(ctx, pods, "", parts, errs)
	for _, s := range k.opts.System {
		n.cgroups[s.Name] = k.sampleCgroup(ctx, s.Path, s.Leaf, parts, errs)
	}
	k.readMachine(&n, errs)
	if network {
		at := time.Now()
		all, err := k.proc.readInterfaces("1")
		if errs.addError("proc", "1/net/dev", err); err == nil {
			n.interfaces, n.networkAt = all, at
		}
	}
	return n
}

// readMachine reads the memory sizes, the task count and the task limit of the machine from /proc. It stores them in node.
func (k *Collector) readMachine(node *nodeSample, errs *failures) {
	var err error
	node.memory, err = k.proc.readMeminfo()
	node.memoryOK = err == nil
	errs.addError("proc", "", err)
	at := time.Now()
	if node.tasks, node.maxTasks, err = k.proc.countTasks(); err == nil {
		node.tasksAt = at
	}
	errs.addError("proc", "", err)
}

// sampleCgroup reads the counters of a cgroup, or of its child leaf if that is not empty. found is false without a readable
// cgroup.
func (k *Collector) sampleCgroup(ctx context.Context, cgroup cgroups.Path, leaf string, parts cgroups.Parts, errs *failures) cgroupSample {
	s := cgroupSample{path: cgroup, leaf: leaf, at: time.Now()}
	var err error
	var from cgroups.Sampler = k.cgroups
	if cgroup == "" && leaf == "" {
		from = k.opts.Machine
	}
	s.stats, err = from.Sample(ctx, cgroup, leaf, parts)
	if s.found = err == nil; !isRemoved(err) { // it is no error if the cgroup does not exist
		errs.addError("cgroup", path.Join(cgroup.Cgroupfs(), leaf), err)
	}
	return s
}

// readBootTime returns the boot time of the machine. It reads the time from /proc until it has succeeded once, and then
// returns that result.
func (k *Collector) readBootTime(errs *failures) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bootTime.IsZero() {
		var err error
		k.bootTime, err = k.proc.bootTime()
		errs.addError("proc", "", err)
	}
	return k.bootTime
}

// measureNodeDisks stores the sizes of the node's file systems in node. The runtime knows those of images and writable layers.
func (k *Collector) measureNodeDisks(ctx context.Context, node *nodeSample, errs *failures) {
	u, err := k.readImageUsage(ctx, k.opts.RuntimePeriod, k.opts.Timeout)
	if err != nil {
		errs.addError("runtime", "image usage", err)
	}
	k.measureDisks(ctx, node, u, k.opts.Timeout, errs)
}

// measureDisks stores the sizes of nodefs, imagefs and containerfs in node, measured concurrently. usage has the mount points of
// the latter two.
func (k *Collector) measureDisks(ctx context.Context, node *nodeSample, usage cri.ImageUsage, timeout time.Duration, errs *failures) {
	if len(usage.Images) > 0 {
		node.images, node.layers, node.imagesKnown = usage.Images[0], usage.Images[0], true
		if len(usage.Containers) > 0 && usage.Containers[0].Mountpoint != node.images.Mountpoint {
			node.layers, node.separateLayers = usage.Containers[0], true
		}
	}
	ask := []diskCall{{"nodefs", k.opts.Root, &node.root, k.filesystems.startStatfs(k.opts.Root)}}
	if node.imagesKnown {
		at := node.images.Mountpoint
		ask = append(ask, diskCall{"imagefs", at, &node.image, k.filesystems.startStatfs(at)})
	}
	if node.separateLayers {
		at := node.layers.Mountpoint
		ask = append(ask, diskCall{"containerfs", at, &node.layer, k.filesystems.startStatfs(at)})
	}
	for _, a := range ask {
		m, err := k.filesystems.awaitStatfs(ctx, a.call, timeout)
		if errs.addError(a.source, a.path, err); err == nil {
			*a.into = &m
		}
	}
	if !node.separateLayers {
		node.layer = node.image
	}
}

// diskCall is a running statfs call for nodefs, imagefs or containerfs. Its result is stored in the field into.
type diskCall struct {
	source, path string
	into         **fsMeasurement
	call         *pendingCall[fsMeasurement]
}

// readImageUsage returns the file systems of images and writable layers with their usage, at most maxAge old unless it returns
// an error.
func (k *Collector) readImageUsage(ctx context.Context, maxAge, timeout time.Duration) (cri.ImageUsage, error) {
	last, at := k.imageUsageCall.lastResult()
	if k.images == nil || !at.IsZero() && time.Since(at) < maxAge {
		return last, nil
	}
	u, err := k.imageUsageCall.callAndWait(ctx, timeout, func() (cri.ImageUsage, error) {
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
