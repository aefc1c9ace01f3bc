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

// NewPods returns a Pods that adds the probes of pods to set. No other code may change the targets of set. It panics if set
// is nil.
func NewPods(set *probe.Set, opts Options) *Pods {
	required.MustArgs("podprobe.NewPods", required.Arg{Name: "set", Value: set, Hint: "probe.NewSet(probe.Options{})"})
	return &Pods{set: set, options: opts, targets: make(map[string][]probe.Target)}
}

// Sync creates, updates and removes the probes of a pod by its spec and published status. The error names each probe that can
// never run; all others take effect. As in the kubelet, it triggers the readiness probe of a started container that is not
// ready.
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

// Check returns an error for each probe of the pod that this agent cannot run, because a field of [Options] such as GRPC is nil.
// Without this check, such a liveness probe would kill the container.
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

// Remove removes the probes of the pod with this UID and their stored results. Call it when no container of the pod runs any
// more, but not when the agent stops: the restarted agent needs the results.
func (p *Pods) Remove(uid string) {
	p.mu.Lock()
	_, known := p.targets[uid]
	delete(p.targets, uid)
	p.mu.Unlock()
	if known {
		_ = p.set.SyncPod(uid, nil) // no target, no error
	}
}

// Healthy returns an error if there are probes and Run of the set is not running.
func (p *Pods) Healthy() error { return p.set.Healthy() }

// Result returns the current value of the probe with this key. It returns ok false if the probe has no value. Callers can
// pass this method as [Results].
func (p *Pods) Result(key probe.Key) (value probe.Value, ok bool) { return p.set.Result(key) }

// Notify registers fn. It is called with the UID of a pod after the value of one of its probes has changed. See
// [probe.Set.Notify].
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
