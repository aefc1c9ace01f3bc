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

// Pods keeps the probes of pods in a [probe.Set], each pod by itself: what a change of one costs does not depend on how
// many others there are. It starts nothing; the set has to run. Its methods may be called from any goroutine, but those
// that change one pod not at the same time.
type Pods struct {
	set     *probe.Set
	options Options

	mu      sync.Mutex                // guards targets
	targets map[string][]probe.Target // by UID, as last handed over
}

// NewPods returns a Pods whose probes are run by a set, which has no other user.
func NewPods(set *probe.Set, o Options) *Pods {
	required.MustArgs("podprobe.NewPods", required.Arg{Name: "set", Value: set, Hint: "probe.NewSet(probe.Options{})"})
	return &Pods{set: set, options: o, targets: make(map[string][]probe.Target)}
}

// Sync says how a pod and its containers are now; the status is the one that is published. The error joins those of
// probes that can never be made. The others take effect. As in the kubelet, a container that has started and is not
// ready is probed at once.
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

// Check returns an error for each probe of a pod that needs an option which is nil: it could never be run, and the kubelet's rule for
// a liveness probe that fails is to stop the container.
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

// Remove ends the probes of a pod and forgets their results. It is for pods of which nothing runs any more, not for the
// end of the agent: the next one begins with the results.
func (p *Pods) Remove(uid string) {
	p.mu.Lock()
	_, known := p.targets[uid]
	delete(p.targets, uid)
	p.mu.Unlock()
	if known {
		_ = p.set.SyncPod(uid, nil) // no target, no error
	}
}

// Healthy returns an error when there are probes and the set does not run, so that nothing is probed.
func (p *Pods) Healthy() error { return p.set.Healthy() }

// Result returns what a probe has come to, if anything. It is a [Results].
func (p *Pods) Result(k probe.Key) (probe.Value, bool) { return p.set.Result(k) }

// Notify has fn called with the UID of a pod when a result of one of its probes has changed: [probe.Set.Notify].
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
