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
	maxParallelMirrors = 4               // actions at a time, each for one pod name
	mirrorPollInterval = time.Second     // between checks of conditions whose change does not wake Run, such as the Node object
	watchWait          = 1 * time.Minute // time limit for the watch to report a created or deleted mirror pod
)

// Longest delays before a failed action is retried.
const (
	maxMirrorRetry    = time.Minute
	maxNamespaceRetry = 10 * time.Minute // while the namespace does not exist or is being deleted
)

// MirrorsOptions configures [Mirrors]. Node is required.
type MirrorsOptions struct {
	// Sources names the sources of static pods, as lifecycle.Options.Sources does. A mirror pod without a static pod is deleted
	// only after each of them has reported a complete set. Empty: one complete set of any source is enough.
	Sources []string
	// Node returns the Node object in the API server, or nil while there is none. It is called often. Required.
	Node func() *corev1.Node
	// RunningUIDs returns the UIDs of all static pods with that name that run or terminate, as listed by
	// lifecycle.Reconciler.Pods. While no source lists one of these pods, the mirror pod is kept. Nil: no such pods.
	RunningUIDs func(namespace, name string) []types.UID
	// Admitted reports whether the static pod of uid is admitted, as lifecycle.Reconciler.Pod reports it. Without admission no
	// mirror pod is created. It is called often. Nil: all pods are admitted.
	Admitted func(uid types.UID) bool
	// ActionFailed is called for each failed create or delete request, with the delay before the retry. For a pod that cannot have a
	// mirror pod it is called once, with retry zero. Nil: no hook.
	ActionFailed func(pod types.NamespacedName, err error, retry time.Duration)
	// Rand returns jitter in [0,1). Nil means math/rand/v2.
	Rand func() float64
}

// Mirrors keeps a mirror pod in the API server for each static pod, so that users see the static pods of the node there. Create
// one with [Source.Mirrors].
type Mirrors struct {
	source *Source
	opts   MirrorsOptions
	guard  runonce.Guard
	wake   chan struct{}

	mu      sync.Mutex // guards the fields below
	static  *podset.Merge
	created map[types.NamespacedName]createdMirror // created by this agent, until the watch reports the pod
	deleted map[types.UID]time.Time                // time of deletion, until the watch reports it
	states  map[types.NamespacedName]*nameState
}

// createdMirror is a mirror pod that this agent has created and the watch has not reported yet.
type createdMirror struct {
	pod *corev1.Pod
	at  time.Time
}

// nameState is the retry state of the mirror pod of one name.
type nameState struct {
	failures      int       // failed actions in a row
	next          time.Time // earliest next action
	logged        string    // error of the last logged warning; empty after a success
	blockedReason string    // the reported reason why no mirror can be created; empty: none
	watchSeen     bool      // the watch has reported the name since the last create request started
}

// Mirrors returns the manager of the node's mirror pods. It sends no requests before [Mirrors.Run] and [Pods.Run] are
// called. It returns an error if a required option is missing. Call it once per Source.
func (s *Source) Mirrors(opts MirrorsOptions) (*Mirrors, error) {
	if opts.Node == nil {
		return nil, errors.New("apiserver.Source.Mirrors: Options.Node: required: a func that returns the Node object, which owns the mirrors")
	}
	if opts.Rand == nil {
		opts.Rand = rand.Float64
	}
	m := &Mirrors{
		source: s, opts: opts, wake: make(chan struct{}, 1), static: podset.NewMerge(opts.Sources...),
		created: map[types.NamespacedName]createdMirror{}, deleted: map[types.UID]time.Time{}, states: map[types.NamespacedName]*nameState{},
	}
	s.pods.addListener(m.handleWatched)
	return m, nil
}

// Set replaces the static pods of one source. Call it after lifecycle.Reconciler.Set, with the same argument.
func (m *Mirrors) Set(set lifecycle.PodSet) {
	m.guard.Require("apiserver.Mirrors", m.source.opts.Logger, nil)
	m.mu.Lock()
	m.static, _ = m.static.With(podset.Accepted{Set: podset.Set{Source: set.Source, Pods: set.Pods, Incomplete: set.Incomplete}})
	m.mu.Unlock()
	m.Changed()
}

// Changed makes Run check all mirror pods now, for example after the Node was registered or a static pod was admitted. It does
// not block. Without it, Run notices a change within one second.
func (m *Mirrors) Changed() {
	sleep.Wake(m.wake)
}

// handleWatched is called after the watch has reported the pods with these keys. It deletes the records of created mirror
// pods with these keys, and wakes Run.
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

// Run creates, replaces and deletes mirror pods until ctx ends, and then returns nil. Failed actions are retried after 1 s,
// doubling to 1 minute, or to 10 minutes while the namespace is missing. A second call returns an error.
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

// awaitWork waits until Run is woken, ctx ends, or the time next is reached. If next is zero, there is no time limit.
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

// planActions returns the actions to send now, and when to plan again; zero means only after a wake-up.
func (m *Mirrors) planActions(now time.Time) (due []MirrorAction, wakeAt time.Time) {
	if !m.source.pods.isSynced() {
		return nil, time.Time{} // the first list wakes Run
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
	due, wakeAt = m.selectDue(actions, now)
	wakeAt = sleep.Earlier(wakeAt, until)
	if waiting {
		wakeAt = sleep.Earlier(wakeAt, now.Add(mirrorPollInterval))
	}
	return due, wakeAt
}

// isRunningUnlisted reports whether a static pod with this name is still running or terminating, but is not in listed.
// Without MirrorsOptions.RunningUIDs it returns false.
func (m *Mirrors) isRunningUnlisted(namespace, name string, listed []*corev1.Pod) bool {
	if m.opts.RunningUIDs == nil {
		return false
	}
	return slices.ContainsFunc(m.opts.RunningUIDs(namespace, name), func(uid types.UID) bool {
		return !slices.ContainsFunc(listed, func(pod *corev1.Pod) bool { return pod.UID == uid })
	})
}

// selectDue returns the actions whose back-off has passed, and when the next back-off ends; zero means none.
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
		// the action is blocked, for example because another pod has the name of the mirror pod
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

// logFailure logs a warning that the mirror pod of this action could not be created or deleted.
func (m *Mirrors) logFailure(action MirrorAction, err error) {
	m.source.opts.Logger.Warn("update mirror pod", "namespace", action.Namespace, "pod", action.Name, "error", err)
}

// callFailed calls the hook ActionFailed, if it is set.
func (m *Mirrors) callFailed(action MirrorAction, err error, retry time.Duration) {
	if m.opts.ActionFailed != nil {
		m.opts.ActionFailed(action.namespacedName(), err, retry)
	}
}

// runActions sends the delete and create requests of all actions, and returns when they have completed. At most
// maxParallelMirrors actions run at a time.
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

// recordResult stores the result of an action, and delays the next action for the same pod name. err may be nil.
func (m *Mirrors) recordResult(ctx context.Context, action MirrorAction, err error) {
	if ctx.Err() != nil {
		return
	}
	// also after a success: a client that keeps deleting a mirror pod must not cause a busy loop
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
	// of equal errors in a row, only the first is logged
	if logged != err.Error() {
		m.logFailure(action, err)
	}
	m.callFailed(action, err, wait)
}

// lacksNamespace reports whether a request has failed because its namespace does not exist or is being deleted.
func lacksNamespace(err error) bool {
	var refusal apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &refusal) {
		details := refusal.Status().Details
		return details != nil && details.Kind == "namespaces"
	}
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// staticPods returns the static pods of all sources, as passed to [Mirrors.Set]. The caller holds the lock.
func (m *Mirrors) staticPods() []*corev1.Pod {
	var static []*corev1.Pod
	for pod := range m.static.Pods() {
		if qos.IsStatic(pod) {
			static = append(static, pod)
		}
	}
	return static
}
