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

// applyAction sends the requests of an action, which concerns one pod name. It first deletes the mirror pod action.Delete,
// and then creates the mirror pod action.Create. Each of them may be nil.
func (m *Mirrors) applyAction(ctx context.Context, action MirrorAction) error {
	pods := kubeapi.In(m.source.client, kubeapi.Pods, action.Namespace)
	if mirror := action.Delete; mirror != nil {
		none := int64(0)
		err := pods.Delete(ctx, mirror.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // Conflict: the UID differs, so that the mirror was replaced already
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
		return err // if it mirrors another pod, the next pass replaces it
	}
	if err != nil {
		return err
	}
	m.recordCreated(created)
	if !matchesStatic(created, action.Create) {
		return fmt.Errorf("the API server has changed the mirror pod: annotation %s is %q, not %q",
			annotationMirror, created.Annotations[annotationMirror], action.Create.Annotations[annotationMirror])
	}
	return nil
}

// findExisting returns the existing mirror pod after a create request has failed with cause, an AlreadyExists error. A
// previous agent process created that mirror pod, or the response to an earlier request was lost. findExisting returns an
// error if the existing pod is no mirror pod of this node or is being deleted.
func (m *Mirrors) findExisting(ctx context.Context, action MirrorAction, cause error) (*corev1.Pod, error) {
	pod, err := kubeapi.In(m.source.client, kubeapi.Pods, action.Namespace).Get(ctx, action.Name)
	switch {
	case err != nil:
		return nil, err
	case !qos.IsMirror(pod) || pod.Spec.NodeName != m.source.opts.NodeName:
		return nil, fmt.Errorf("a pod that is no mirror pod has its name: %w", cause)
	case pod.DeletionTimestamp != nil:
		return nil, fmt.Errorf("the previous mirror pod is being deleted: %w", cause)
	}
	return pod, nil
}

// resetWatchSeen clears the mark that the watch has reported a pod with the name in the action. It is called before a create
// request, so that recordCreated can see whether the watch reports the pod during the request.
func (m *Mirrors) resetWatchSeen(action MirrorAction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[action.namespacedName()].watchSeen = false
}

// recordDeleted records that the mirror pod is deleted, until the watch reports the deletion.
func (m *Mirrors) recordDeleted(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted[mirror.UID] = time.Now()
	if created, ok := m.created[namespacedNameOf(mirror)]; ok && created.pod.UID == mirror.UID {
		delete(m.created, namespacedNameOf(mirror))
	}
}

// recordCreated records that the mirror pod was created, so that expectedMirrors returns it before the watch reports it. If
// the watch has reported a pod of that name since the start of the create request, it records nothing, because the mirror
// pod may be deleted already.
func (m *Mirrors) recordCreated(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen := m.states[namespacedNameOf(mirror)].watchSeen; !seen {
		m.created[namespacedNameOf(mirror)] = createdMirror{mirror, time.Now()}
	}
}

// expectedMirrors returns the mirror pods that the API server has now: the watched mirror pods, corrected by the creations
// and deletions that the watch has not reported yet. until is when the first record of such a creation or deletion expires;
// zero means that there is none. The caller holds the lock.
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

// isNameTaken reports whether the node has a pod with this name that is not a mirror pod.
func (m *Mirrors) isNameTaken(namespace, name string) bool {
	pod, ok := m.source.pods.getObject(namespace, name)
	return ok && !qos.IsMirror(pod)
}

// MirrorCount returns the number of mirror pods that the API server lists for the node.
func (p *Pods) MirrorCount() (count int) {
	for _, pod := range p.store.List() {
		if qos.IsMirror(pod) {
			count++
		}
	}
	return count
}

// mirrorOf returns the mirror pod that shows the status of the static pod. ok is false if there is none, if it is being
// deleted, or if the mirror pod of that name belongs to another static pod.
func (p *Pods) mirrorOf(static *corev1.Pod) (mirrorPod *corev1.Pod, ok bool) {
	if static == nil {
		return nil, false
	}
	mirror, ok := p.getObject(static.Namespace, static.Name)
	if !ok || !qos.IsMirror(mirror) || mirror.DeletionTimestamp != nil || !matchesStatic(mirror, static) {
		return nil, false
	}
	return mirror, true
}
