// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/qos"
)

// do deletes and creates what an action says.
func (m *Mirrors) applyAction(ctx context.Context, action MirrorAction) error {
	pods := kubeapi.In(m.source.client, kubeapi.Pods, action.Namespace)
	if mirror := action.Delete; mirror != nil {
		none := int64(0)
		err := pods.Delete(ctx, mirror.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // of a conflict it is another one by now
			return err
		}
		m.recordDeleted(mirror)
		if apierrors.IsConflict(err) {
			return err
		}
	}
	if action.Create == nil {
		return nil
	}
	m.resetWatchSeen(action)
	created, err := pods.Create(ctx, action.Create)
	if apierrors.IsAlreadyExists(err) {
		created, err = m.findExisting(ctx, action, err)
		if err == nil {
			m.recordCreated(created)
		}
		return err // where it stands for another pod it is replaced
	}
	if err != nil {
		return err
	}
	m.recordCreated(created)
	if !matchesStatic(created, action.Create) {
		return fmt.Errorf("the API server has made another pod of it: annotation %s is %q, not %q",
			annotationMirror, created.Annotations[annotationMirror], action.Create.Annotations[annotationMirror])
	}
	return nil
}

// existing returns the mirror that is there already: of an agent before this one, or of a request whose answer was lost. The
// watch has yet to show it.
func (m *Mirrors) findExisting(ctx context.Context, action MirrorAction, cause error) (*corev1.Pod, error) {
	pod, err := kubeapi.In(m.source.client, kubeapi.Pods, action.Namespace).Get(ctx, action.Name)
	switch {
	case err != nil:
		return nil, err
	case !qos.IsMirror(pod) || pod.Spec.NodeName != m.source.opts.NodeName:
		return nil, fmt.Errorf("another pod of the API server has the name: %w", cause)
	case pod.DeletionTimestamp != nil:
		return nil, fmt.Errorf("the one before it is being deleted: %w", cause)
	}
	return pod, nil
}

// expect begins to note whether the watch tells of a name.
func (m *Mirrors) resetWatchSeen(action MirrorAction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[action.namespacedName()].watchSeen = false
}

func (m *Mirrors) recordDeleted(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted[mirror.UID] = time.Now()
	if created, ok := m.created[namespacedNameOf(mirror)]; ok && created.pod.UID == mirror.UID {
		delete(m.created, namespacedNameOf(mirror))
	}
}

// noteMade believes in a mirror until the watch tells of its name. If it has done so since the request began, the mirror may
// have come and gone by now.
func (m *Mirrors) recordCreated(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen := m.states[namespacedNameOf(mirror)].watchSeen; !seen {
		m.created[namespacedNameOf(mirror)] = createdMirror{mirror, time.Now()}
	}
}

// believed returns the mirror pods that the API server has: those of the watch, without those that it has deleted since and
// with those that it has created. Until is when that is not believed any more. The lock is held.
func (m *Mirrors) expectedMirrors(now time.Time) (mirrorPods []*corev1.Pod, until time.Time) {
	watched := map[string]bool{}
	listed := m.source.pods.store.List()
	for _, pod := range listed {
		watched[string(pod.UID)] = true
	}
	for name, created := range m.created {
		if watched[string(created.pod.UID)] || now.Sub(created.at) >= watchWait {
			delete(m.created, name)
			continue
		}
		until = sleep.Earlier(until, created.at.Add(watchWait))
	}
	for uid, at := range m.deleted {
		if now.Sub(at) >= watchWait {
			delete(m.deleted, uid)
		} else if watched[string(uid)] {
			until = sleep.Earlier(until, at.Add(watchWait))
		}
	}
	for _, pod := range listed {
		_, deleted := m.deleted[pod.UID]
		_, replaced := m.created[namespacedNameOf(pod)]
		if qos.IsMirror(pod) && !deleted && !replaced {
			mirrorPods = append(mirrorPods, pod)
		}
	}
	for _, created := range m.created {
		if _, deleted := m.deleted[created.pod.UID]; !deleted {
			mirrorPods = append(mirrorPods, created.pod)
		}
	}
	return mirrorPods, until
}

// taken reports whether a pod that is no mirror has the name.
func (m *Mirrors) isNameTaken(namespace, name string) bool {
	pod, ok := m.source.pods.getObject(namespace, name)
	return ok && !qos.IsMirror(pod)
}

// MirrorCount returns how many mirror pods the API server has for the node.
func (p *Pods) MirrorCount() (count int) {
	for _, pod := range p.store.List() {
		if qos.IsMirror(pod) {
			count++
		}
	}
	return count
}

// mirror returns the mirror pod of a static pod: the one that a status of the static pod goes to. It is none that stands for
// another pod of the name, and none that is being deleted.
func (p *Pods) mirrorOf(static *corev1.Pod) (*corev1.Pod, bool) {
	if static == nil {
		return nil, false
	}
	mirror, ok := p.getObject(static.Namespace, static.Name)
	if !ok || !qos.IsMirror(mirror) || mirror.DeletionTimestamp != nil || !matchesStatic(mirror, static) {
		return nil, false
	}
	return mirror, true
}
