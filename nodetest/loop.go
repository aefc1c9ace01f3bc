// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Loop is a simulated node whose time is a queue of events. It calls the decisions of the engines in the order of time, in the goroutine of its
// caller: for example plan.Decide of package lifecycle, and eviction.Policy.Decide. It starts no goroutines and needs no bubble. It is much faster
// than a [Node], which runs package agent itself. Both have the same events: a test compares them.
//
// A Loop has no API server, config maps and secrets: the environment of containers is ignored. Pods with lifecycle hooks or resource claims are
// refused. It does not resize pods in place and preempts none. One goroutine at a time may call its methods. Several loops share nothing and may run
// in parallel.
type Loop struct {
	ctx     context.Context //nolint:containedctx // of NewLoop: for the calls of its methods
	options *Options
	setup   *loopSetup
	queue   eventQueue
	kernel  *kernel
	log     recorder
	faults  faults
	reports *executor.Node // of the reporters of all pods

	containers registry
	measurer   measurer
	pods       []*loopPod // in the order of their creation
	byUID      map[string]*loopPod
	created    int // sandboxes, for their addresses

	evictor      loopEvictor
	idle         loopIdle
	agentStarted time.Time
	agentStarts  int           // number of the present start of the agent
	ready        bool          // the agent runs and has listed the containers
	jumped       time.Duration // difference of the wall clock to the time of the queue
	statusRead   time.Time     // when the agent has read or will have read the status of the runtime
	cut          bool          // the network to the API server is cut
	delayed      []func()      // changes of pods that the agent has not seen because of that
	observer     loopObserver
	classesDue   bool // the cgroups of the QoS classes are about to be updated
}

// NewLoop returns a node at the time 2000-01-01, whose agent has just started. Options.API, Kubeconfig and Logger must not be
// set, and Options.Adjust may set the Ranker only. Options.Fault and the probes of behaviors must not block. The error names the
// invalid option. If ctx ends, [Loop.Advance] returns at once.
func NewLoop(ctx context.Context, options Options) (*Loop, error) {
	return newLoop(ctx, options, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), loopObserver{}, nil)
}

// newLoop returns a node whose time starts at start. It has passed agentDelay and agentPause after start when newLoop returns. Nodes with the same
// sharer, which may be nil, share memory.
func newLoop(ctx context.Context, options Options, start time.Time, observer loopObserver, sharer *setupSharer) (*Loop, error) {
	if options.API != nil || options.Kubeconfig != "" || options.Logger != nil {
		return nil, errors.New("nodetest.NewLoop: Options.API, Kubeconfig and Logger: a Loop has no API server and no logs")
	}
	if err := options.checkSelected(); err != nil {
		return nil, err
	}
	l := &Loop{ctx: ctx, options: new(options.withDefaults()), byUID: map[string]*loopPod{}, observer: observer}
	l.queue.now = start
	l.reports = &executor.Node{Logger: slog.New(slog.DiscardHandler), Event: l.recordEvent}
	l.log.start(l.clock, options.LogLimit)
	var adjusted agent.Options
	if options.Adjust != nil {
		options.Adjust(&adjusted)
	}
	ranker := adjusted.Ranker
	if adjusted.Ranker = nil; !reflect.ValueOf(adjusted).IsZero() {
		return nil, errors.New("nodetest.NewLoop: Options.Adjust sets more than Ranker, which a Loop does not use")
	}
	var err error
	if l.kernel, err = newKernel(options.Machine, l.clock, l.options.Resolution, l.endContainer); err != nil {
		return nil, err
	}
	l.measurer = measurer{name: l.options.Name, kernel: l.kernel, containers: &l.containers}
	if l.setup, err = newLoopSetup(l.options, l.kernel.machine.Spec(), ranker, l.queue.now, sharer); err != nil {
		return nil, fmt.Errorf("nodetest.NewLoop: %w", err)
	}
	if err := startSystem(ctx, l.kernel, &l.options.System); err != nil {
		return nil, err
	}
	l.updateClasses()
	l.startAgent()
	l.idle = loopIdle{lastTick: l.queue.now.Add(agentDelay + agentPause), ticking: true}
	l.queue.schedule(l.idle.lastTick.Add(l.options.Resolution), l.evaluateUsage)
	l.Advance(agentDelay + agentPause)
	return l, nil
}

// clock returns the current simulated time for timers. Unlike wallClock, it never jumps.
func (l *Loop) clock() time.Time { return l.queue.now }

// wallClock returns the time of the node for time stamps.
func (l *Loop) wallClock() time.Time { return l.queue.now.Add(l.jumped) }

// fromWallClock converts a wall clock time to the simulated time of clock, with the present difference of both. The zero time stays zero.
func (l *Loop) fromWallClock(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-l.jumped)
}

// Advance lets the node run for the duration d. It returns early if the context of NewLoop ends.
func (l *Loop) Advance(d time.Duration) {
	l.advanceTo(l.queue.now.Add(max(d, 0)))
}

// advanceTo runs the events that are due until the time until. It returns early if the context of NewLoop ends.
func (l *Loop) advanceTo(until time.Time) {
	l.resumeTicks() // the caller may have changed the machine
	for l.ctx.Err() == nil {
		l.evictor.resumePasses(until)
		e, ok := l.queue.next(until)
		if !ok {
			return
		}
		e.run()
		l.kernel.reportKills()
		l.resumeTicks()
	}
}

// Age returns the time since the start of the node.
func (l *Loop) Age() time.Duration { return l.log.age() }

// Log returns all entries until now, ordered by time.
func (l *Loop) Log() Log { return l.log.log() }

// Machine advances the machine to the current time and returns it.
func (l *Loop) Machine() *machine.Machine {
	l.kernel.keepAwake() // the caller may start processes
	l.kernel.advance()
	return l.kernel.machine
}

// Add creates pods on the node. The default namespace is default, and the default UID namespace-name. The error names the pod
// and the field that is invalid or not simulated.
func (l *Loop) Add(pods ...*corev1.Pod) error {
	for _, p := range pods {
		if err := l.addPod(p); err != nil {
			return err
		}
	}
	return nil
}

// addPod creates one pod.
func (l *Loop) addPod(pod *corev1.Pod) error {
	pod = pod.DeepCopy()
	pod.Namespace, pod.Spec.NodeName = cmp.Or(pod.Namespace, corev1.NamespaceDefault), l.options.Name
	pod.UID = cmp.Or(pod.UID, types.UID(pod.Namespace+"-"+pod.Name))
	pod.CreationTimestamp = metav1.NewTime(l.wallClock())
	podapi.Default(pod)
	name := pod.Namespace + "/" + pod.Name
	if err := errors.Join(append(podapi.Validate(pod), podapi.Unsupported(pod)...).ToAggregate(), checkSimulated(pod)); err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	if _, found := l.findPod(pod.Namespace, pod.Name); found || l.byUID[string(pod.UID)] != nil {
		return fmt.Errorf("pod %s: the node has a pod with this name or UID", name)
	}
	l.applyWhenConnected(func() { l.startPod(pod) })
	return nil
}

// checkSimulated returns an error if the pod uses a feature that a Loop does not simulate, such as lifecycle hooks or
// ephemeral containers.
func checkSimulated(pod *corev1.Pod) error {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Lifecycle != nil && (c.Lifecycle.PreStop != nil || c.Lifecycle.PostStart != nil) {
			return fmt.Errorf("container %s has lifecycle hooks, which a Loop does not run", c.Name)
		}
	}
	if len(pod.Spec.EphemeralContainers)+len(pod.Spec.SchedulingGates) > 0 {
		return errors.New("ephemeral containers and scheduling gates are not simulated by a Loop")
	}
	return nil
}

// Delete deletes a pod of namespace default, with its grace period. It does not wait until the pod has terminated.
func (l *Loop) Delete(name string) error {
	p, found := l.findPod(corev1.NamespaceDefault, name)
	if !found {
		return fmt.Errorf("pod %s: not found", name)
	}
	l.applyWhenConnected(p.markDeleted)
	return nil
}

// applyWhenConnected calls change, which adds or deletes a pod on the API server. While the network is cut, it delays the call until the network is
// connected again.
func (l *Loop) applyWhenConnected(change func()) {
	if l.cut {
		l.delayed = append(l.delayed, change)
		return
	}
	change()
}

// Pod returns a copy of the named pod in the namespace default, with its last published status. It returns false if there is
// no such pod.
func (l *Loop) Pod(name string) (*corev1.Pod, bool) {
	p, found := l.findPod(corev1.NamespaceDefault, name)
	if !found {
		return nil, false
	}
	return p.withStatus(), true
}

// findPod returns the pod with this name, and false if there is none.
func (l *Loop) findPod(namespace, name string) (*loopPod, bool) {
	i := slices.IndexFunc(l.pods, func(p *loopPod) bool { return p.id.Namespace == namespace && p.id.Name == name })
	if i < 0 {
		return nil, false
	}
	return l.pods[i], true
}

// Stats returns the usage of the named pod in the namespace default, as [Node.Stats] does.
func (l *Loop) Stats(name string) (cgroups.Stats, error) {
	p, found := l.findPod(corev1.NamespaceDefault, name)
	if !found {
		return cgroups.Stats{}, fmt.Errorf("pod %s: not found", name)
	}
	l.kernel.advance()
	return podUsage(l.ctx, l.kernel.machine.Cgroups(), p.pod)
}

// endContainer makes the container of a killed process exit.
func (l *Loop) endContainer(kill cgroupstest.KilledProc) {
	started := l.containers.findContainer(kill.Name)
	if started == nil {
		return // a process of the system
	}
	exit := killedExit
	if kill.Cause != cgroupstest.CauseKill {
		l.log.recordOOM(started, kill)
		exit.Reason = reasonOOMKilled
	}
	if p := l.byUID[started.pod.UID]; p != nil {
		p.exitByID(kill.Name, exit)
	}
}

// updateClasses writes the current limits to the cgroups of the QoS classes and to the cgroup that contains all pods.
func (l *Loop) updateClasses() {
	l.classesDue = false
	l.kernel.advance()
	for _, u := range l.setup.planClasses(l.activePods()) {
		_ = l.kernel.machine.Cgroups().Apply(l.ctx, u.Path, u.Resources) // fails only if ctx has ended
	}
}

// requestClasses schedules one call of updateClasses after the current event. Further calls in the same event change nothing.
func (l *Loop) requestClasses() {
	if !l.classesDue {
		l.classesDue = true
		l.queue.after(0, l.updateClasses)
	}
}

// activePods returns the pods that count against the capacity of the node: those that were admitted and have not terminated.
func (l *Loop) activePods() (active []*corev1.Pod) {
	for _, p := range l.pods {
		if p.admitted && !p.hasTerminated() {
			active = append(active, p.pod)
		}
	}
	return active
}

// identity returns the identity of a pod.
func identity(pod *corev1.Pod) cri.PodIdentity {
	return cri.PodIdentity{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
}
