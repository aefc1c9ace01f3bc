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

// Cgroups samples and lists cgroups for a [Collector]. *driver.Driver of package cgroups/driver implements it.
type Cgroups interface {
	cgroups.Sampler
	cgroups.Lister
}

// imageUsageReporter is the part of [cri.Images] that reports the usage of the file systems for images and writable layers.
type imageUsageReporter interface {
	ImageUsage(ctx context.Context) (cri.ImageUsage, error)
}

// layerLister is the part of [cri.StatsLister] that reports the usage of writable layers.
type layerLister interface {
	ContainerStats(ctx context.Context) ([]cri.ContainerStats, error)
}

// Collector measures the resource usage of a node and its pods. Create it with [New]. Its methods may be called from any
// goroutine.
type Collector struct {
	opts        Options
	cgroups     Cgroups
	proc        procfs
	filesystems filesystems
	walker      walker
	volumeMeter *volumeMeter
	rates       cpuRates
	leaves      leafCache

	lister cri.Lister
	layers layerLister        // nil: the runtime cannot measure layers
	images imageUsageReporter // nil: the runtime does not report where images are

	list           sharedCall[cri.Snapshot]
	runtimeStats   sharedCall[map[string]cri.ContainerStats] // by container ID
	imageUsageCall sharedCall[cri.ImageUsage]

	guard runonce.Guard

	mu       sync.Mutex
	bootTime time.Time // boot time of the machine; zero: not read yet
}

// New returns a Collector that measures the cgroups in c and the pods of the runtime. It starts no goroutine: [Collector.Run]
// measures disk usage. Writable layers are measured if runtime has the method ContainerStats of [cri.StatsLister], image file
// systems if it has ImageUsage of [cri.Images].
func New(c Cgroups, runtime cri.Lister, opts Options) (*Collector, error) {
	if err := required.Args("stats.New", required.Arg{Name: "c", Value: c, Hint: "a *driver.Driver"}, required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if opts.Machine == nil {
		opts.Machine = c
	}
	if r, ok := opts.Machine.(interface{ Root() string }); ok && r.Root() != "/" {
		return nil, fmt.Errorf("stats.New: the cgroups begin at %q, so that memory.available would be the machine's memory less the usage of that "+
			"part alone: set Options.Machine to a driver.Driver whose Options.Root is empty", r.Root())
	}
	k := &Collector{
		opts: opts, cgroups: c, lister: runtime, proc: procfs{opts.Proc},
		filesystems: filesystems{statfs: opts.Statfs},
		walker:      walker{cpuFraction: opts.CPUFraction, timeout: 10 * time.Second, statfs: opts.Statfs},
		volumeMeter: newVolumeMeter(10 * time.Second),
	}
	k.layers, _ = runtime.(layerLister)
	k.images, _ = runtime.(imageUsageReporter)
	return k, nil
}

// Run measures the disk usage of logs and volumes until ctx ends, and returns nil. Without Run, summaries lack these values, and
// [Collector.Summary] logs a warning. A measurement that hangs in the kernel is abandoned; see [Collector.HungCalls].
func (k *Collector) Run(ctx context.Context) error {
	if err := k.guard.Begin(); err != nil {
		return fmt.Errorf("stats.Collector: %w", err)
	}
	defer k.guard.End()
	var asker sync.WaitGroup
	defer asker.Wait()
	asker.Go(func() { k.volumeMeter.measureLoop(ctx) })
	var listed time.Time // time of the pod list whose targets are set
	for {
		snapshot, err := k.listPods(ctx, k.opts.RuntimePeriod)
		if err != nil {
			k.opts.Logger.Debug("pods cannot be listed, those that are known are measured", "error", err)
		}
		if listed.IsZero() || !snapshot.Time.Equal(listed) { // most rounds measure one target of many
			walked, asked := k.listTargets(snapshot)
			k.walker.targets.setTargets(walked)
			k.volumeMeter.setTargets(asked)
			listed = snapshot.Time
		}
		again := time.Now().Add(k.opts.LogPeriod)
		wake := sleep.Earlier(k.walker.measureDue(ctx), again)
		if sleep.Until(ctx, wake) != nil {
			return nil
		}
	}
}

// HungCall is a call to the kernel or the runtime that has been running for longer than [Options].Timeout.
type HungCall struct {
	Path  string // file system or directory; empty for the runtime
	Since time.Duration
}

// HungCalls returns the calls to the kernel and the runtime that have been running for longer than [Options].Timeout. A hung
// call to the kernel occupies a thread. Its path, or the list of the runtime, is not read again before it returns.
func (k *Collector) HungCalls() (all []HungCall) {
	add := func(path string, since time.Duration) { all = append(all, HungCall{path, since}) }
	k.filesystems.listHung(k.opts.Timeout, add)
	hanging := func(path string, err error) {
		if h, ok := errors.AsType[hungError](err); ok {
			add(path, h.since)
		}
	}
	k.walker.targets.eachError(hanging)
	k.volumeMeter.targets.eachError(hanging)
	for _, since := range []time.Duration{k.list.pendingDuration(), k.runtimeStats.pendingDuration(), k.imageUsageCall.pendingDuration()} {
		if since > k.opts.Timeout {
			add("", since)
		}
	}
	return all
}

// Summary measures node and pods. It returns the content of the kubelet's GET /stats/summary. The result is never nil: if a
// source fails, its values are missing, and the returned error joins an [*Error] per failed source.
func (k *Collector) Summary(ctx context.Context) (*statsapi.Summary, error) {
	k.guard.Require("stats.Collector", k.opts.Logger, nil)
	return k.buildSummary(ctx, true)
}

// CPUAndMemory returns a summary with only CPU, memory and swap, as GET /stats/summary?only_cpu_and_memory=true does. See
// [Collector.Summary] for errors.
func (k *Collector) CPUAndMemory(ctx context.Context) (*statsapi.Summary, error) {
	return k.buildSummary(ctx, false)
}

// buildSummary measures node and pods, and builds their summary. If full is false, it includes only CPU, memory and swap.
func (k *Collector) buildSummary(ctx context.Context, full bool) (*statsapi.Summary, error) {
	var errs failures
	parts := partsBasic
	if full {
		parts = partsFull
	}
	n := k.sampleNode(ctx, parts, full, &errs)
	if full {
		k.measureNodeDisks(ctx, &n, &errs)
	}
	var sandbox cgroups.Parts
	if full {
		sandbox = cgroups.PartProcs // to find the network namespaces
	}
	pods := k.samplePods(ctx, parts, sandbox, &errs)
	if full || hasContainerWithoutCgroup(pods) {
		k.addRuntimeStats(ctx, pods, &errs)
	}
	pods = dropUnmeasured(pods)
	s := &statsapi.Summary{Node: k.buildNodeStats(&n, full), Pods: make([]statsapi.PodStats, 0, len(pods))}
	for i := range pods {
		s.Pods = append(s.Pods, k.buildPodStats(&pods[i], &n, full))
	}
	if full {
		failed := func(source string) func(string, error) {
			return func(path string, err error) {
				if !isRemoved(err) {
					errs.addError(source, path, err)
				}
			}
		}
		k.walker.targets.eachError(failed("directory"))
		k.volumeMeter.targets.eachError(failed("volume"))
	}
	k.rates.dropOld(time.Now())
	return s, errs.joinErrors()
}

const (
	partsBasic = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartSwap
	partsFull  = partsBasic | cgroups.PartPressure | cgroups.PartPids
)
