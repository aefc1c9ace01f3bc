// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/qos"
)

const (
	// wiringPeriod is the period of the checks. A fault is reported after two successive checks have found it, that is within 10
	// s.
	wiringPeriod = 4 * time.Second
	// wiringReportPeriod is the time between two reports of one fault.
	wiringReportPeriod = time.Minute
)

// Notifier is an optional interface of [Observer], [Probes], [PodResources] and [Devices], to report which pods have changed.
// *pleg.Generator, *podprobe.Pods and *volume.Volumes implement it.
type Notifier interface {
	// Notify registers fn, which the implementation then calls with the UIDs of changed pods. Notify does not block.
	Notify(fn func(uids ...string))
}

// Follower is an optional interface of [PodCgroups], for an implementation that reads the pods of the Reconciler. *podtree.Tree
// implements it.
type Follower interface {
	// Follow passes two methods of the Reconciler to the implementation, which may then call them: active is [Reconciler.Active],
	// and mayRun is [Reconciler.MayRun]. Follow does not block.
	Follow(active func() (pods []*corev1.Pod, complete bool), mayRun func(uid string) bool)
}

// CgroupNamer is an optional interface of [PodCgroups] that names the cgroups of pods. *podtree.Tree on a driver.Driver
// implements it.
type CgroupNamer interface {
	// CgroupParent returns the function for podspec.Options.CgroupParent, or nil if the names are unknown.
	CgroupParent() func(pod *corev1.Pod) string
}

// NodeResources is an optional interface of [PodCgroups] that provides the resources of the node. *podtree.Tree implements it.
type NodeResources interface {
	// Node returns the value for podspec.Options.Node.
	Node() qos.Node
}

// ProbeChecker is an optional interface of [Probes], for an implementation that supports only some kinds of probes.
// *podprobe.Pods implements it.
type ProbeChecker interface {
	// Check returns an error for each probe field of the pod that the implementation does not support.
	Check(pod *corev1.Pod) field.ErrorList
}

// completeSpec sets the fields CgroupParent and Node of Options.Spec from Options.Cgroups if they are unset.
func (o *Options) completeSpec() error {
	if o.Cgroups == nil {
		return nil
	}
	if n, ok := o.Cgroups.(CgroupNamer); ok && o.Spec.CgroupParent == nil {
		o.Spec.CgroupParent = n.CgroupParent()
	}
	// Otherwise the containers of a pod would run outside the pod's cgroup.
	if o.Spec.CgroupParent == nil {
		return errors.New("lifecycle.Options: field Spec.CgroupParent: required with Cgroups, unless these are a CgroupNamer, as a podtree.Tree on a " +
			"driver.Driver is: without, no pod is in its cgroup")
	}
	if n, ok := o.Cgroups.(NodeResources); ok && o.Spec.Node == nil {
		node := n.Node()
		o.Spec.Node = &node
	}
	return nil
}

// reportNotRun passes err, the error that the program does not call Run, to Hooks.Error.
func (r *Reconciler) reportNotRun(err error) {
	if hook := r.opts.Hooks.Error; hook != nil {
		hook(cri.PodIdentity{}, err, 0)
	}
}

// reportNoAdmit reports once that a temporarily evicted pod is started again without a check of the node (Options.Admit is nil).
func (r *Reconciler) reportNoAdmit() {
	r.noAdmitOnce.Do(func() {
		r.reportRuntimeError(errors.New("a temporarily evicted pod starts again without admission: Options.Admit is nil, so it may be evicted again at once: see podevict.Admit"))
	})
}

// connectNotifiers wakes the workers of pods that the observer, probes, volumes or devices report as changed ([Notifier]), and
// passes the active pods to Options.Cgroups ([Follower]).
func (r *Reconciler) connectNotifiers() {
	if n, ok := r.observer.(Notifier); ok {
		n.Notify(r.wakeWorkers)
		r.changedCalled.Store(true)
	}
	if n, ok := r.opts.Probes.(Notifier); ok {
		n.Notify(r.wakeWorkers)
	}
	if n, ok := r.opts.Volumes.(Notifier); ok {
		n.Notify(r.wakeWorkers)
	}
	if n, ok := r.opts.Devices.(Notifier); ok {
		n.Notify(r.wakeWorkers)
	}
	if f, ok := r.opts.Cgroups.(Follower); ok {
		f.Follow(r.Active, r.MayRun)
	}
}

// wiringChecks detects parts of the agent that the program does not run or connect. An observer that does not run is not among
// them, because awaitFirstList detects it.
type wiringChecks struct {
	r *Reconciler

	changedCalled     bool // Changed was called, by the program or the observer
	changesUnreported bool // Changed was not called before the last check, although pods had changed

	probesUnhealthy bool                 // the probes were unhealthy at the last check
	lastReports     map[string]time.Time // time of the last report, by name of the part
}

// watchWiring checks every wiringPeriod, until ctx ends, whether the program calls Changed and runs the probes. It reports
// failures.
func (r *Reconciler) watchWiring(ctx context.Context) {
	w := &wiringChecks{r: r, lastReports: map[string]time.Time{}}
	for sleep.For(ctx, wiringPeriod) == nil {
		if !w.changedCalled {
			w.checkChangedCalls()
		}
		w.checkProbesRun()
	}
}

// checkChangedCalls reports an error if the program has not called Changed after pods were started or stopped, and no [Notifier]
// replaces it.
func (w *wiringChecks) checkChangedCalls() {
	switch acted := w.r.podsChanged.Load(); {
	case w.r.changedCalled.Load():
		w.changedCalled = true
	case acted && w.changesUnreported:
		w.reportPart("changes", errors.New("pods change, and Reconciler.Changed is not called: the observer has no Notify method, so the program must call Changed"))
	default:
		w.changesUnreported = acted
	}
}

// checkProbesRun detects probes whose Run is not called.
func (w *wiringChecks) checkProbesRun() {
	probes, ok := w.r.opts.Probes.(interface{ Healthy() error })
	if !ok {
		return
	}
	err := probes.Healthy()
	if err != nil && w.probesUnhealthy {
		w.reportPart("probes", fmt.Errorf("the probes of pods do not run: is probe.Set.Run running? %w", err))
	}
	w.probesUnhealthy = err != nil
}

// reportPart reports that the program does not run or connect this part of the agent, at most once per wiringReportPeriod.
func (w *wiringChecks) reportPart(part string, err error) {
	if last, before := w.lastReports[part]; before && time.Since(last) < wiringReportPeriod {
		return
	}
	w.lastReports[part] = time.Now()
	w.r.opts.Logger.Error("agent is not connected", "error", err)
	if hook := w.r.opts.Hooks.Error; hook != nil {
		hook(cri.PodIdentity{}, err, wiringReportPeriod)
	}
}
