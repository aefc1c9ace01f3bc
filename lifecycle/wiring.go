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
	// wiringPeriod is how often the parts that a program has to connect are looked at. What is missing at two looks is
	// told, so that it is told within 10 s.
	wiringPeriod = 4 * time.Second
	// wiringAgain is how long after that it is told again.
	wiringReportPeriod = time.Minute
)

// Notifier says of which pods there is something new. *pleg.Generator, *podprobe.Pods and *volume.Volumes are ones; an
// [Observer], [Probes] and [PodResources] need not be.
type Notifier interface {
	// Notify has fn called with the UIDs of pods of which there is something new, from then on. It does not wait.
	Notify(fn func(uids ...string))
}

// Follower is a [PodCgroups] that has to know which pods there are. *podtree.Tree is one; a PodCgroups need not be.
type Follower interface {
	// Follow has active and mayRun asked, from then on: [Reconciler.Active] and [Reconciler.MayRun]. It does not wait.
	Follow(active func() (pods []*corev1.Pod, complete bool), mayRun func(uid string) bool)
}

// CgroupNamer is a [PodCgroups] that names the cgroups of pods for the runtime. *podtree.Tree is one, where it works on a driver.Driver.
type CgroupNamer interface {
	// CgroupParent returns the function for podspec.Options.CgroupParent, or nil where the names are not known.
	CgroupParent() func(pod *corev1.Pod) string
}

// NodeResources is a [PodCgroups] that has the resources of the node. *podtree.Tree is one.
type NodeResources interface {
	// Node returns the resources for podspec.Options.Node.
	Node() qos.Node
}

// ProbeChecker is a [Probes] that cannot run probes of all kinds. *podprobe.Pods is one.
type ProbeChecker interface {
	// Check returns an error for each field of a pod that asks for a probe that is never run.
	Check(pod *corev1.Pod) field.ErrorList
}

// completeSpec takes from Options.Cgroups what Options.Spec leaves out. The sandboxes of pods that have a cgroup must be in it, so a
// missing name is an error.
func (o *Options) completeSpec() error {
	if o.Cgroups == nil {
		return nil
	}
	if n, ok := o.Cgroups.(CgroupNamer); ok && o.Spec.CgroupParent == nil {
		o.Spec.CgroupParent = n.CgroupParent()
	}
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

// reportNotRun calls Hooks.Error because Run is missing.
func (r *Reconciler) reportNotRun(err error) {
	if hook := r.opts.Hooks.Error; hook != nil {
		hook(cri.PodIdentity{}, err, 0)
	}
}

// reportNoAdmit reports once that a pod which was temporarily evicted starts although nothing reports whether the node has recovered.
func (r *Reconciler) reportNoAdmit() {
	r.noAdmitOnce.Do(func() {
		r.reportRuntimeError(errors.New("a pod that was evicted starts again unasked: Options.Admit is nil, so it may be evicted again at once: see podevict.Admit"))
	})
}

// connect has the reconciler told of what is new, and asked for its pods, by those who can.
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
	if f, ok := r.opts.Cgroups.(Follower); ok {
		f.Follow(r.Active, r.MayRun)
	}
}

// wiring finds parts that a program forgot to run or to connect. That the observer does not run is found by [Reconciler.begin].
type wiringChecks struct {
	r *Reconciler

	changedCalled     bool // Changed is called, or the observer calls it
	changesUnreported bool // it was not, at the last look, although there was a reason

	probesUnhealthy bool // the probes were, at the last look
	lastReports     map[string]time.Time
}

// watchWiring tells what is missing until ctx ends.
func (r *Reconciler) watchWiring(ctx context.Context) {
	w := &wiringChecks{r: r, lastReports: map[string]time.Time{}}
	for sleep.For(ctx, wiringPeriod) == nil {
		if !w.changedCalled {
			w.checkChangedCalls()
		}
		w.checkProbesRun()
	}
}

// lookAtChanges finds that what an observer sees that is no [Notifier] is not passed on: the agent has changed something in
// the runtime, and nobody has ever called Changed.
func (w *wiringChecks) checkChangedCalls() {
	switch acted := w.r.podsChanged.Load(); {
	case w.r.changedCalled.Load():
		w.changedCalled = true
	case acted && w.changesUnreported:
		w.reportPart("changes", errors.New("pods change, and Reconciler.Changed is not called: the observer has no Notify, so whoever runs it has to pass on what it sees"))
	default:
		w.changesUnreported = acted
	}
}

// lookAtProbes finds that nobody runs the probes.
func (w *wiringChecks) checkProbesRun() {
	probes, ok := w.r.opts.Probes.(interface{ Healthy() error })
	if !ok {
		return
	}
	err := probes.Healthy()
	if err != nil && w.probesUnhealthy {
		w.reportPart("probes", fmt.Errorf("pods have probes that nobody runs: is the Run of the set of probes running (probe.Set.Run)? %w", err))
	}
	w.probesUnhealthy = err != nil
}

// tell says what is missing, at most once in a while.
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
