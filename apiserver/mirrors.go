// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/qos"
)

const (
	maxParallelMirrors = 4               // names that are worked on
	mirrorPollInterval = time.Second     // for what nobody tells of: the node, a pod that terminates
	watchWait          = 1 * time.Minute // after which what the watch never showed is not believed
)

// maxRetry is the longest wait after a failed action, and maxNamespaceRetry the longest for a mirror in a namespace that does not
// exist or is being deleted: the node learns of a new namespace only by the next attempt.
const (
	maxMirrorRetry    = time.Minute
	maxNamespaceRetry = 10 * time.Minute
)

// MirrorsOptions tunes [Mirrors]. The zero value lacks Node.
type MirrorsOptions struct {
	// Sources names the sources of static pods, as lifecycle.Options.Sources does. No mirror is an orphan before all of them have
	// reported completely. Empty: one complete set of any is enough.
	Sources []string
	// Node returns the Node object as the API server has it, and nil as long as there is none; it is asked often. Required.
	Node func() *corev1.Node
	// RunningUIDs returns the UIDs of the static pods of that name that run or terminate, whether a source lists them or not: those in
	// lifecycle.Reconciler.Pods. As long as one of them is listed by no source, the mirror of that name stays. Nil: there are none.
	RunningUIDs func(namespace, name string) []types.UID
	// Admitted reports whether the static pod of a UID is admitted: Admitted of lifecycle.Reconciler.Pod. Until then no mirror of the pod
	// is created. It is called often. Nil: each pod is admitted.
	Admitted func(uid types.UID) bool
	// ActionFailed is called for each action that failed, with the wait before the next attempt, and once for a pod that cannot have
	// a mirror, with no wait. Nil is not told.
	ActionFailed func(pod types.NamespacedName, err error, retry time.Duration)
	// Rand is a source of jitter in [0,1). Nil means math/rand/v2's.
	Rand func() float64
}

// Mirrors keeps a pod in the API server for each static pod, so that users see it there. Make one with [Source.Mirrors].
type Mirrors struct {
	source *Source
	opts   MirrorsOptions
	guard  runonce.Guard
	wake   chan struct{}

	mu      sync.Mutex // guards what follows
	static  *podset.Merge
	created map[types.NamespacedName]createdMirror // created, and the watch has yet to show it
	deleted map[types.UID]time.Time                // deleted, and the watch has yet to show it
	states  map[types.NamespacedName]*nameState
}

// createdMirror is a mirror pod that the API server has created and the watch has yet to show.
type createdMirror struct {
	pod *corev1.Pod
	at  time.Time
}

// try is how it goes with a name.
type nameState struct {
	failures      int
	next          time.Time // nothing is done before
	logged        string    // error of the last warning; empty after a success
	blockedReason string    // why nothing can be done, once it was told
	watchSeen     bool      // the watch has told of the name since the last request to create the mirror began
}

// Mirrors returns what keeps mirror pods. A Source has one. It starts nothing; the pods of the Source have to be run, too.
func (s *Source) Mirrors(o MirrorsOptions) (*Mirrors, error) {
	if o.Node == nil {
		return nil, errors.New("apiserver.Source.Mirrors: Options.Node: required: a func that returns the Node object, which owns the mirrors")
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	m := &Mirrors{
		source: s, opts: o, wake: make(chan struct{}, 1), static: podset.NewMerge(o.Sources...),
		created: map[types.NamespacedName]createdMirror{}, deleted: map[types.UID]time.Time{}, states: map[types.NamespacedName]*nameState{},
	}
	s.pods.addListener(m.handleWatched)
	return m, nil
}

// Set replaces the static pods of a source. It is called after lifecycle.Reconciler.Set, with the same set.
func (m *Mirrors) Set(set lifecycle.PodSet) {
	m.guard.Require("apiserver.Mirrors", m.source.opts.Logger, nil)
	m.mu.Lock()
	m.static, _ = m.static.With(podset.Accepted{Set: podset.Set{Source: set.Source, Pods: set.Pods, Incomplete: set.Incomplete}})
	m.mu.Unlock()
	m.Changed()
}

// Changed has Run look again: the Node was registered or is another one, or a static pod was admitted or has terminated. Without it Run looks
// once a second as long as it waits for such a thing.
func (m *Mirrors) Changed() {
	sleep.Wake(m.wake)
}

// shown forgets what was believed of pods that the watch has told of.
func (m *Mirrors) handleWatched(keys ...string) {
	m.mu.Lock()
	watched := make(map[string]bool, len(keys))
	for _, key := range keys {
		watched[key] = true
	}
	for name, t := range m.states {
		if watched[kubeapi.Key(name.Namespace, name.Name)] {
			t.watchSeen = true
		}
	}
	for name := range m.created {
		if watched[kubeapi.Key(name.Namespace, name.Name)] {
			delete(m.created, name)
		}
	}
	m.mu.Unlock()
	m.Changed()
}

// Run creates, replaces and deletes mirror pods until ctx ends. It returns nil, or an error at once when it is called a second
// time. An action that fails is retried after 1 s, doubling to 1 minute, or to 10 minutes while the namespace does not exist.
func (m *Mirrors) Run(ctx context.Context) error {
	if err := m.guard.Begin(); err != nil {
		return fmt.Errorf("apiserver.Mirrors: %w", err)
	}
	defer m.guard.End()
	for ctx.Err() == nil {
		due, next := m.planActions(time.Now())
		m.runActions(ctx, due)
		if len(due) > 0 {
			continue
		}
		m.awaitWork(ctx, next)
	}
	return nil
}

// sleep waits until there may be something to do. Without a time that is until it is told.
func (m *Mirrors) awaitWork(ctx context.Context, next time.Time) {
	var timer <-chan time.Time
	if !next.IsZero() {
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-m.wake:
	case <-timer:
	}
}

// plan returns what is to be done now, and when to look again if nothing is.
func (m *Mirrors) planActions(now time.Time) (due []MirrorAction, next time.Time) {
	if !m.source.pods.isSynced() {
		return nil, time.Time{} // the first list wakes
	}
	node := m.opts.Node()
	m.mu.Lock()
	static, complete := m.staticPods(), m.static.IsComplete()
	mirrorPods, until := m.expectedMirrors(now)
	m.mu.Unlock()
	waiting := false
	actions := PlanMirrors(static, mirrorPods, MirrorInput{
		Node: node, SourcesComplete: complete, NameTaken: m.isNameTaken,
		StillRunning: func(namespace, name string) bool {
			running := m.isRunningUnlisted(namespace, name, static)
			waiting = waiting || running
			return running
		},
		Admitted: func(pod *corev1.Pod) bool {
			admitted := m.opts.Admitted == nil || m.opts.Admitted(pod.UID)
			waiting = waiting || !admitted
			return admitted
		},
	})
	due, next = m.selectDue(actions, now)
	next = sleep.Earlier(next, until)
	if waiting {
		next = sleep.Earlier(next, now.Add(mirrorPollInterval))
	}
	return due, next
}

// isRunningUnlisted reports whether a static pod of a name runs or terminates that is not in listed.
func (m *Mirrors) isRunningUnlisted(namespace, name string, listed []*corev1.Pod) bool {
	if m.opts.RunningUIDs == nil {
		return false
	}
	return slices.ContainsFunc(m.opts.RunningUIDs(namespace, name), func(uid types.UID) bool {
		return !slices.ContainsFunc(listed, func(pod *corev1.Pod) bool { return pod.UID == uid })
	})
}

// pace returns those actions whose time has come, and when that of the next one comes.
func (m *Mirrors) selectDue(actions []MirrorAction, now time.Time) (due []MirrorAction, next time.Time) {
	m.mu.Lock()
	var blocked []MirrorAction
	needed := make(map[types.NamespacedName]bool, len(actions))
	for _, action := range actions {
		name := action.namespacedName()
		needed[name] = true
		t := m.states[name]
		if t == nil {
			t = &nameState{}
			m.states[name] = t
		}
		if action.Delete == nil && action.Create == nil {
			if errors.Is(action.Err, errNotRegistered) {
				next = sleep.Earlier(next, now.Add(mirrorPollInterval))
			}
			if text := action.Err.Error(); t.blockedReason != text {
				t.blockedReason = text
				blocked = append(blocked, action)
			}
			continue
		}
		if now.Before(t.next) {
			next = sleep.Earlier(next, t.next)
			continue
		}
		due = append(due, action)
	}
	for name, t := range m.states {
		if !needed[name] && !now.Before(t.next) {
			delete(m.states, name)
		}
	}
	m.mu.Unlock()
	for _, action := range blocked {
		m.logFailure(action, action.Err)
		m.callFailed(action, action.Err, 0)
	}
	return due, next
}

func (a MirrorAction) namespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
}

// warn logs why there is no mirror for a pod.
func (m *Mirrors) logFailure(action MirrorAction, err error) {
	m.source.opts.Logger.Warn("mirror pod", "namespace", action.Namespace, "pod", action.Name, "error", err)
}

// callFailed calls the hook Failed, if there is one.
func (m *Mirrors) callFailed(action MirrorAction, err error, retry time.Duration) {
	if m.opts.ActionFailed != nil {
		m.opts.ActionFailed(action.namespacedName(), err, retry)
	}
}

// act does some actions beside each other, and returns when all are done.
func (m *Mirrors) runActions(ctx context.Context, actions []MirrorAction) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallelMirrors)
	for _, action := range actions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			m.recordResult(ctx, action, m.applyAction(ctx, action))
		})
	}
	wg.Wait()
}

// note stores when a name may be worked on again: a second after a success, so that a client that deletes mirrors keeps nothing busy.
// It logs an error once, until another error or a success.
func (m *Mirrors) recordResult(ctx context.Context, action MirrorAction, err error) {
	if ctx.Err() != nil {
		return
	}
	wait := mirrorPollInterval
	m.mu.Lock()
	t := m.states[action.namespacedName()]
	t.blockedReason = ""
	logged := t.logged
	if err == nil {
		t.failures, t.logged = 0, ""
	} else {
		t.failures++
		t.logged = err.Error()
		policy := backoff.Policy{First: time.Second, Max: maxMirrorRetry}
		if lacksNamespace(err) {
			policy.Max = maxNamespaceRetry
		}
		wait = backoff.Jitter(policy.After(t.failures), 1, 1.5, m.opts.Rand())
		if requested, ok := kubeapi.RetryAfter(err); ok {
			wait = max(wait, requested)
		}
	}
	t.next = time.Now().Add(wait)
	m.mu.Unlock()
	if err == nil {
		return
	}
	if logged != err.Error() {
		m.logFailure(action, err)
	}
	m.callFailed(action, err, wait)
}

// lacksNamespace reports whether a request failed because the namespace does not exist or is being deleted.
func lacksNamespace(err error) bool {
	var refusal apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &refusal) {
		details := refusal.Status().Details
		return details != nil && details.Kind == "namespaces"
	}
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// staticPods returns the static pods that are wanted. The lock is held.
func (m *Mirrors) staticPods() []*corev1.Pod {
	var static []*corev1.Pod
	for pod := range m.static.Pods() {
		if qos.IsStatic(pod) {
			static = append(static, pod)
		}
	}
	return static
}
