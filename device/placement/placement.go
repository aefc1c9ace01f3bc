// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Containers lists the containers of the runtime. *pleg.Generator implements it.
type Containers interface {
	// Pods returns the pods of the last list, from a cache. Reserve returns an error until Pods has succeeded.
	Pods() ([]cri.Pod, error)
	// Notify registers fn, which is called with the UIDs of pods after a change of their containers. New calls it once.
	Notify(fn func(uids ...string))
}

// Options configures a [Placement]. Devices, Containers and Policy are required; NewNode sets Policy.
type Options struct {
	// Devices gives containers the devices of plugins. The topology policy of its allocator merges the hints of devices, CPUs and memory. Placement.Run calls
	// Devices.Run.
	Devices *poddevice.Devices
	// Policy decides which containers have exclusive CPUs.
	Policy *cpus.Policy
	// CPUs configures the allocator of CPUs. Zero: no record. The Placement also logs each error.
	CPUs cpus.AllocatorOptions
	// MemoryPolicy decides which containers have memory of their own, and on which NUMA nodes. Nil: none.
	MemoryPolicy *numa.Policy
	// Memory configures the allocator of memory. Zero: no record. The Placement also logs each error.
	Memory numa.AllocatorOptions
	// MemoryConfig is the configuration from which NewNode creates MemoryPolicy. New does not use it. Zero: the memory manager policy None.
	MemoryConfig numa.Config
	// Containers lists the running containers, whose CPUs change with the shared pool.
	Containers Containers
	// ResizeCPUs and ResizeMemory are the gates InPlacePodVerticalScalingExclusiveCPUs and InPlacePodVerticalScalingExclusiveMemory; see AdmitResize. A
	// resized container keeps the CPUs and the memory that Reserve has given it.
	ResizeCPUs, ResizeMemory bool
	// Updater writes the CPUs of running containers. Nil: New returns an error under the CPU manager policy static.
	Updater cri.Updater
	// IsManaged returns false for a pod that no source lists, and whose removal has ended; true for all until each source has listed its pods, as the method of
	// *lifecycle.Handle. Run, and Reserve before it rejects a pod, free what such pods have. Nil: only Release frees CPUs and memory.
	IsManaged func(uid string) bool
	// Active returns all pods that are not being removed, as the method of *lifecycle.Handle. While a pod that it does not return has CPUs or memory, Reserve
	// rejects no pod, but returns another error. Nil, or complete false because a source has not listed its pods: Reserve rejects the pod.
	Active func() (pods []*corev1.Pod, complete bool)
	// Owns reports whether a pod of the runtime is one of this agent, as the method of *lifecycle.Handle. Containers of other pods keep their CPUs. Nil: all
	// pods are.
	Owns func(pod *cri.Pod) bool
	// Period is the time between two checks of the CPUs of all running containers, cpuManagerReconcilePeriod. Zero: 10 s. New returns an error if it is negative.
	Period time.Duration
	Hooks  Hooks
	// Kubelet switches off differences from the kubelet. The zero value keeps them.
	Kubelet Kubelet
	Logger  *slog.Logger // nil discards
}

// Hooks are functions that a [Placement] calls with no lock held. They must not block. Any field may be nil.
type Hooks struct {
	// CPUsPinned is called for each container that needs exclusive CPUs or shares those of its pod, after the pod has got all its resources or was
	// rejected (kubelet_cpu_manager_pinning_requests_total).
	CPUsPinned func(cpus.Pinning)
	// MemoryPinned is called for each container with memory of its own or of its pod, after the pod has got all its resources or was rejected
	// (kubelet_memory_manager_pinning_requests_total).
	MemoryPinned func(numa.Pinning)
}

// Kubelet switches off differences between a [Placement] and the kubelet.
type Kubelet struct {
	LateShared bool // a pod starts before the containers of the shared pool have left its CPUs: Reserve does not wait, and PrepareStart writes no CPUs
}

// Placement gives the containers of pods their devices, CPUs and memory. Create it with [NewNode], or with [New]. It implements lifecycle.Devices.
type Placement struct {
	opts      Options
	log       *slog.Logger
	allocator *cpus.Allocator
	writer    *cpus.Writer
	memory    *numa.Allocator // nil: no container has memory of its own
	running   runonce.Guard

	mu       sync.Mutex                       // guards the fields below
	requests map[string]map[string]requests   // by pod UID and container, at the last Reserve
	launched map[containerKey]topology.CPUSet // CPUs that Container has returned and PrepareStart has not checked
	starting []cpus.RunningContainer          // containers of PrepareStart that Containers does not list yet
	listed   []cpus.RunningContainer          // for the writer; reused, so that a pass without a change allocates little
	started  map[string]traces                // of the pods in the runtime when the agent started, by UID; nil: the containers were not listed yet
}

// New returns a Placement. It reads the records of CPUs and memory, and logs the containers whose CPUs or memory the configuration or the machine does not
// permit any more. New starts no goroutine; call [Placement.Run]. The error names the invalid option, or is that of [cpus.NewAllocator] or
// [numa.NewAllocator].
func New(opts Options) (*Placement, error) {
	switch {
	case opts.Devices == nil:
		return nil, errors.New("placement: Options.Devices is nil")
	case opts.Policy == nil:
		return nil, errors.New("placement: Options.Policy is nil")
	case opts.Containers == nil:
		return nil, errors.New("placement: Options.Containers is nil")
	case opts.Updater == nil && opts.Policy.Name() == cpus.PolicyStatic:
		return nil, errors.New("placement: Options.Updater is nil: the policy static changes the CPUs of running containers")
	}
	if err := opts.checkAgreement(); err != nil {
		return nil, err
	}
	p := &Placement{opts: opts, log: opts.Logger, requests: map[string]map[string]requests{}, launched: map[containerKey]topology.CPUSet{}}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	o := opts.CPUs
	o.Changed = func() {
		if opts.CPUs.Changed != nil {
			opts.CPUs.Changed()
		}
		p.writer.Wake()
	}
	o.Error = func(err error) {
		p.log.Error("exclusive CPUs", "error", err)
		if opts.CPUs.Error != nil {
			opts.CPUs.Error(err)
		}
	}
	var err error
	if p.allocator, err = cpus.NewAllocator(opts.Policy, o); err != nil {
		return nil, err
	}
	if p.writer, err = cpus.NewWriter(p.allocator, cpus.WriterOptions{
		Running: p.listRunning, Write: p.writeCPUs, Period: opts.Period, Error: func(err error) { p.log.Error("CPUs of running containers", "error", err) },
	}); err != nil {
		return nil, err
	}
	for _, notice := range p.allocator.Notices() {
		p.log.Warn("the configuration or the machine has changed", "cpus", notice)
	}
	if err := p.createMemory(); err != nil {
		return nil, err
	}
	opts.Containers.Notify(func(...string) { p.writer.Wake() })
	p.running.Require("placement.Placement", p.log, nil)
	return p, nil
}

// checkAgreement returns an error if the allocator of devices, the policy of CPUs and the policy of memory are configured for different topology policies, or
// treat pods with pod-level resources differently. A policy that assigns nothing agrees with everything.
func (o *Options) checkAgreement() error {
	merged := o.Devices.Allocator().Topology()
	hasCPUs, hasMemory := o.Policy.Name() == cpus.PolicyStatic, o.MemoryPolicy != nil && o.MemoryPolicy.Name() == numa.PolicyStatic
	if used := o.Policy.Topology(); hasCPUs && used != merged.Policy {
		return fmt.Errorf("placement: cpus.Config.Topology of Options.Policy is %s, and device.Topology.Policy of Options.Devices is %s: set both", used, merged.Policy)
	}
	if gate := o.Policy.IsPodLevel(&cpus.Pod{PodLevel: true}); hasCPUs && gate != merged.PodLevel {
		return fmt.Errorf("placement: cpus.Config.Gates.PodLevel of Options.Policy is %t, and device.Topology.PodLevel of Options.Devices is %t: set both", gate, merged.PodLevel)
	}
	if hasMemory {
		if gate := o.MemoryPolicy.IsPodLevel(&numa.Pod{PodLevel: true}); gate != merged.PodLevel {
			return fmt.Errorf("placement: numa.Config.PodLevel of Options.MemoryPolicy is %t, and device.Topology.PodLevel of Options.Devices is %t: set both", gate, merged.PodLevel)
		}
	}
	return nil
}

// createMemory creates the allocator of memory, if there is a policy.
func (p *Placement) createMemory() (err error) {
	if p.opts.MemoryPolicy == nil {
		return nil
	}
	o := p.opts.Memory
	o.Error = func(err error) {
		p.log.Error("memory on NUMA nodes", "error", err)
		if p.opts.Memory.Error != nil {
			p.opts.Memory.Error(err)
		}
	}
	if p.memory, err = numa.NewAllocator(p.opts.MemoryPolicy, o); err != nil {
		return err
	}
	for _, change := range p.memory.Changes() {
		p.log.Warn("the configuration or the machine has changed", "memory", change)
	}
	return nil
}

// retainPeriod is the time between two checks for pods that are not managed.
const retainPeriod = time.Minute

// Run runs Options.Devices and writes the CPUs of running containers. Each minute it frees the CPUs and memory of pods for which Options.IsManaged returns
// false; poddevice.Options.IsManaged frees their devices. Run returns nil when ctx ends. Call it only once, and start it before the first Reserve. It returns
// an error at once if it was called before, or if Options.Devices runs already.
func (p *Placement) Run(ctx context.Context) error {
	if err := p.running.Begin(); err != nil {
		return fmt.Errorf("placement.Placement: %w", err)
	}
	defer p.running.End()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var parts sync.WaitGroup
	failed := make(chan error, 2)
	for _, run := range []func(context.Context) error{p.opts.Devices.Run, p.writer.Run} {
		parts.Go(func() {
			defer cancel()
			failed <- run(ctx)
		})
	}
	ticker := time.NewTicker(retainPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			p.retainManaged()
		}
	}
	parts.Wait()
	return errors.Join(<-failed, <-failed)
}

// retainManaged frees the CPUs and the memory of pods that are not managed. It reports whether there were any.
func (p *Placement) retainManaged() (freed bool) {
	if p.opts.IsManaged == nil {
		return false
	}
	isManaged := func(uid string) bool {
		managed := p.opts.IsManaged(uid)
		freed = freed || !managed
		return managed
	}
	if err := p.allocator.Retain(isManaged); err != nil {
		p.log.Error("free the CPUs of removed pods", "error", err)
	}
	if p.memory != nil {
		if err := p.memory.Retain(isManaged); err != nil {
			p.log.Error("free the memory of removed pods", "error", err)
		}
	}
	p.mu.Lock()
	uids := slices.Collect(maps.Keys(p.requests))
	p.mu.Unlock()
	gone := slices.DeleteFunc(uids, p.opts.IsManaged) // without the lock: IsManaged may wait for a call of the Placement
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, uid := range gone {
		delete(p.requests, uid)
	}
	return freed
}

// traces tells what the runtime had of a pod when the agent started.
type traces struct {
	any  bool // a sandbox, or a container in any state: the pod was admitted before, and may wait for a restart of its containers
	runs bool // a container that runs or is about to run
}

// findTraces returns what the runtime had of the pod with this UID when the agent started. Such a pod keeps running, whatever has changed.
func (p *Placement) findTraces(uid string) (traces, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started == nil {
		pods, err := p.opts.Containers.Pods()
		if err != nil {
			return traces{}, fmt.Errorf("the containers of the runtime are not listed yet, which say if the pod runs: %w", err)
		}
		p.started = map[string]traces{}
		for i := range pods {
			p.started[pods[i].UID] = traces{any: true}
		}
		for _, c := range p.appendRunning(nil, pods) {
			p.started[c.PodUID] = traces{any: true, runs: true}
		}
	}
	return p.started[uid], nil
}

// Notify registers a function, in addition to those of earlier calls. fn is called with the UIDs of pods whose devices have changed their health, or whose
// wait for a plugin has ended. Notify panics if fn is nil.
func (p *Placement) Notify(fn func(uids ...string)) { p.opts.Devices.Notify(fn) }

// Reserve reserves the devices, CPUs and memory of a pod, or nothing. A pod that has them keeps them. It implements lifecycle.Devices.
//
// Reserve returns a [*podstatus.Rejection] if the pod must fail, also if its resources could become free later. It returns another error, and not a
// rejection, while a pod that is being removed has CPUs or memory; see Options.Active. After any error that is no rejection, such as a [*device.WaitError],
// call Reserve again. After an error the pod has only what it had before, and needs no Release. A pod that ran when the agent started may have more, and
// keeps it for the next call.
//
// If the pod gets exclusive CPUs, Reserve then waits until other containers have left them, for at most 10 s or until ctx ends; without Run, for the whole
// 10 s. The pod has its resources by then: if the wait fails or ends early, Reserve logs it and returns nil, and Run continues to write the CPUs.
func (p *Placement) Reserve(ctx context.Context, pod *corev1.Pod) error {
	uid := string(pod.UID)
	p.mu.Lock()
	_, known := p.requests[uid]
	p.mu.Unlock()
	if known {
		return p.opts.Devices.Reserve(ctx, pod) // a later start of containers: the pod keeps its CPUs and memory
	}
	earlier, err := p.findTraces(uid)
	if err != nil {
		return fmt.Errorf("reserve CPUs of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	a, err := p.tryReserve(ctx, pod, earlier.runs)
	if isRejection(err) && p.retainManaged() {
		a, err = p.tryReserve(ctx, pod, earlier.runs)
	}
	if isRejection(err) && earlier.any && !earlier.runs {
		a, err = p.tryReserve(ctx, pod, true) // all its containers have exited: the pod may lose its place, but does not fail
	}
	if err == nil {
		a.completeReservation(ctx)
		return nil
	}
	rejection, isRejected := errors.AsType[*podstatus.Rejection](err)
	if !isRejected {
		return err
	}
	err = a.explainRejection(rejection)
	if leaving := p.listLeaving(uid); len(leaving) > 0 {
		return fmt.Errorf("pod %s/%s waits for the CPUs and memory of pods that are being removed: %s: %v",
			pod.Namespace, pod.Name, strings.Join(leaving, ", "), err) //nolint:errorlint // an error that wraps the rejection would reject the pod
	}
	a.reportPinnings()
	return err
}

// isRejection reports whether err rejects a pod.
func isRejection(err error) bool {
	_, isRejected := errors.AsType[*podstatus.Rejection](err)
	return isRejected
}

// listLeaving returns the sorted UIDs of the pods that have CPUs or memory and are not active any more, except the pod with this UID.
func (p *Placement) listLeaving(except string) []string {
	if p.opts.Active == nil {
		return nil
	}
	pods, complete := p.opts.Active()
	if !complete {
		return nil
	}
	leaving := slices.Collect(maps.Keys(p.allocator.State().Assigned))
	if p.memory != nil {
		leaving = append(leaving, p.memory.State().Pods()...)
	}
	active := map[string]bool{except: true}
	for _, pod := range pods {
		active[string(pod.UID)] = true
	}
	leaving = slices.DeleteFunc(leaving, func(uid string) bool { return active[uid] })
	slices.Sort(leaving)
	return slices.Compact(leaving)
}
