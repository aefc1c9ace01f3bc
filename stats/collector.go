// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Cgroups is what a [Collector] reads cgroups with, such as a driver.Driver.
type Cgroups interface {
	cgroups.Sampler
	cgroups.Lister
}

// imageUser is the part of [cri.Images] that knows where images and writable layers are.
type imageUser interface {
	ImageUsage(ctx context.Context) (cri.ImageUsage, error)
}

// layerLister is the part of [cri.StatsLister] that measures writable layers.
type layerLister interface {
	ContainerStats(ctx context.Context) ([]cri.ContainerStats, error)
}

// Collector measures a node and its pods. Its methods may be called from any goroutine. Make one with [New].
type Collector struct {
	opts    Options
	cgroups Cgroups
	proc    procfs
	disks   disks
	walker  walker
	asker   *asker
	rates   rates
	leaves  leaves

	lister cri.Lister
	layers layerLister // nil: the runtime measures no layers
	images imageUser   // nil: the runtime does not say where images are

	list     slot[cri.Snapshot]
	measured slot[map[string]cri.ContainerStats] // by container
	usage    slot[cri.ImageUsage]

	run runonce.Guard

	mu     sync.Mutex
	booted time.Time // when the machine was; zero: nobody has looked
}

// New returns a collector for the pods of a runtime. It starts nothing. What the runtime can do beside listing is found
// out here: a [cri.StatsLister] measures writable layers, and a runtime
// with the method ImageUsage of [cri.Images] reports where images are.
func New(c Cgroups, runtime cri.Lister, o Options) (*Collector, error) {
	if err := required.Args("stats.New", required.Arg{Name: "c", Value: c, Hint: "a *driver.Driver"}, required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Machine == nil {
		o.Machine = c
	}
	if r, ok := o.Machine.(interface{ Root() string }); ok && r.Root() != "/" {
		return nil, fmt.Errorf("stats.New: the cgroups begin at %q, so that memory.available would be the machine's memory less the usage of that "+
			"part alone: set Options.Machine to a driver.Driver whose Options.Root is empty", r.Root())
	}
	k := &Collector{
		opts: o, cgroups: c, lister: runtime, proc: procfs{o.Proc},
		disks:  disks{statfs: o.Statfs},
		walker: walker{part: o.CPUFraction, timeout: 10 * time.Second, statfs: o.Statfs},
		asker:  newAsker(10 * time.Second),
	}
	k.layers, _ = runtime.(layerLister)
	k.images, _ = runtime.(imageUser)
	return k, nil
}

// Run measures logs and volumes in the background until ctx ends, and returns nil. Without it summaries have neither, and
// the first of [Collector.Summary] has that logged within 10 s.
// A measurement in which the kernel does not come back is left behind, see [Collector.Pending].
func (k *Collector) Run(ctx context.Context) error {
	if err := k.run.Begin(); err != nil {
		return fmt.Errorf("stats.Collector: %w", err)
	}
	defer k.run.End()
	var asker sync.WaitGroup
	defer asker.Wait()
	asker.Go(func() { k.asker.run(ctx) })
	var listed time.Time // what is measured now was
	for {
		snapshot, err := k.snapshot(ctx, k.opts.RuntimePeriod)
		if err != nil {
			k.opts.Logger.Debug("pods cannot be listed, those that are known are measured", "error", err)
		}
		if listed.IsZero() || !snapshot.Time.Equal(listed) { // most rounds are for one target of many
			walked, asked := k.targets(snapshot)
			k.walker.known.want(walked)
			k.asker.follow(asked)
			listed = snapshot.Time
		}
		again := time.Now().Add(k.opts.LogPeriod)
		wake := sleep.Earlier(k.walker.round(ctx), again)
		if sleep.Until(ctx, wake) != nil {
			return nil
		}
	}
}

// Stuck is something that does not answer.
type HungCall struct {
	Path  string // a file system or a directory; empty for the runtime
	Since time.Duration
}

// Pending returns the calls that take longer than [Options].Wait. Each keeps a thread of the operating system until the
// kernel gives it back, and what is below its path is not asked again before that.
func (k *Collector) HungCalls() (all []HungCall) {
	add := func(path string, since time.Duration) { all = append(all, HungCall{path, since}) }
	k.disks.hanging(k.opts.Timeout, add)
	hanging := func(path string, err error) {
		if h, ok := errors.AsType[hangs](err); ok {
			add(path, h.since)
		}
	}
	k.walker.known.errors(hanging)
	k.asker.known.errors(hanging)
	for _, since := range []time.Duration{k.list.pendingFor(), k.measured.pendingFor(), k.usage.pendingFor()} {
		if since > k.opts.Timeout {
			add("", since)
		}
	}
	return all
}

// Summary returns what GET /stats/summary of a kubelet has. It is never nil: what a source does not have is missing, and
// the error, which may be many joined, names the source with an [*Error].
func (k *Collector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	k.run.Require("stats.Collector", k.opts.Logger, nil)
	return k.collect(ctx, true)
}

// CPUAndMemory returns the same for CPU, memory and swap alone, as with ?only_cpu_and_memory=true.
func (k *Collector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return k.collect(ctx, false)
}

// collect makes a pass over everything.
func (k *Collector) collect(ctx context.Context, whole bool) (*statsapi.Summary, error) {
	var f failures
	parts := partsShort
	if whole {
		parts = partsWhole
	}
	n := k.node(ctx, parts, whole, &f)
	if whole {
		k.nodeDisks(ctx, &n, &f)
	}
	var sandbox cgroups.Parts
	if whole {
		sandbox = cgroups.PartProcs // by which their networks are found
	}
	pods := k.pods(ctx, parts, sandbox, &f)
	if whole || lacking(pods) {
		k.layersOf(ctx, pods, &f)
	}
	pods = measuredOnly(pods)
	s := &statsapi.Summary{Node: k.nodeStats(&n, whole), Pods: make([]statsapi.PodStats, 0, len(pods))}
	for i := range pods {
		s.Pods = append(s.Pods, k.podStats(&pods[i], &n, whole))
	}
	if whole {
		failed := func(source string) func(string, error) {
			return func(path string, err error) {
				if !gone(err) {
					f.add(source, path, err)
				}
			}
		}
		k.walker.known.errors(failed("directory"))
		k.asker.known.errors(failed("volume"))
	}
	k.rates.forget(time.Now())
	return s, f.join()
}

const (
	partsShort = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartSwap
	partsWhole = partsShort | cgroups.PartPressure | cgroups.PartPids
)
