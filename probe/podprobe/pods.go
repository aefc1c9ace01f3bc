// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"errors"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/probe"
)

// Pods keeps the probes of many pods in a [probe.Set]. The cost of a change of one pod does not depend on the number of pods. It
// starts nothing: the caller runs the set. Methods may be called from any goroutine, but two calls that change one pod must not
// overlap.
type Pods struct {
	set     *probe.Set
	options Options

	mu      sync.Mutex                // guards targets
	targets map[string][]probe.Target // by pod UID, as last passed to the set
}

// NewPods returns a Pods that uses set, which must have no other user. It panics if set is nil.
func NewPods(set *probe.Set, opts Options) *Pods {
	required.MustArgs("podprobe.NewPods", required.Arg{Name: "set", Value: set, Hint: "probe.NewSet(probe.Options{})"})
	return &Pods{set: set, options: opts, targets: make(map[string][]probe.Target)}
}

// Sync updates the probes of a pod to its spec and its published status. The error joins the errors of probes that can never run;
// the remaining probes take effect. As in the kubelet, a container that has started and is not ready is probed at once.
func (p *Pods) Sync(pod *corev1.Pod, status *corev1.PodStatus) error {
	uid := string(pod.UID)
	targets, errs := Targets(pod, status, p.getTargets(uid), p.options)
	if len(targets) == 0 {
		p.Remove(uid)
		return errors.Join(errs...)
	}
	p.setTargets(uid, targets)
	errs = append(errs, p.set.SyncPod(uid, targets))
	for i := range targets {
		if t := &targets[i]; t.Kind == probe.Readiness && t.Started {
			if st := findStatus(status, t.Container); st != nil && !st.Ready {
				p.set.Trigger(t.Key)
			}
		}
	}
	return errors.Join(errs...)
}

// Check returns an error for each probe of a pod that needs an option which is nil. Such a probe could never run, and the kubelet
// would stop the container for a failed liveness probe.
func (p *Pods) Check(pod *corev1.Pod) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	for name, list := range map[string][]corev1.Container{"initContainers": pod.Spec.InitContainers, "containers": pod.Spec.Containers} {
		for i := range list {
			for kind, probe := range listProbes(&list[i]) {
				path := spec.Child(name).Index(i).Child(kindName(kind) + "Probe")
				if probe.GRPC != nil && p.options.GRPC == nil {
					errs = append(errs, field.Forbidden(path.Child("grpc"), "this agent runs no gRPC probes: podprobe.Options.GRPC is nil"))
				}
				if probe.Exec != nil && p.options.Execer == nil {
					errs = append(errs, field.Forbidden(path.Child("exec"), "this agent runs no exec probes: podprobe.Options.Execer is nil"))
				}
			}
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// Remove removes the probes of a pod and their stored results. It is called when no container of the pod runs any more, but not
// when the agent stops: a restarted agent continues with the results.
func (p *Pods) Remove(uid string) {
	p.mu.Lock()
	_, known := p.targets[uid]
	delete(p.targets, uid)
	p.mu.Unlock()
	if known {
		_ = p.set.SyncPod(uid, nil) // no target, no error
	}
}

// Healthy returns an error if there are probes and the set does not run.
func (p *Pods) Healthy() error { return p.set.Healthy() }

// Result returns the current value of a probe, and whether it has one. Its type is [Results].
func (p *Pods) Result(key probe.Key) (probe.Value, bool) { return p.set.Result(key) }

// Notify registers fn, which is called with the UID of a pod after a probe value of the pod has changed: see [probe.Set.Notify].
func (p *Pods) Notify(fn func(uids ...string)) { p.set.Notify(fn) }

func (p *Pods) getTargets(uid string) []probe.Target {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.targets[uid]
}

func (p *Pods) setTargets(uid string, targets []probe.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets[uid] = targets
}
