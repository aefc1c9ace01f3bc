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

// applyAction deletes the mirror pod action.Delete and then creates the mirror pod action.Create. Each may be nil.
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

// findExisting returns the mirror pod of this node that exists already, after a create request has failed with an
// AlreadyExists error.
func (m *Mirrors) findExisting(ctx context.Context, action MirrorAction, alreadyExists error) (*corev1.Pod, error) {
	// a previous agent process created the pod, or the response to an earlier request was lost
	pod, err := kubeapi.In(m.source.client, kubeapi.Pods, action.Namespace).Get(ctx, action.Name)
	switch {
	case err != nil:
		return nil, err
	case !qos.IsMirror(pod) || pod.Spec.NodeName != m.source.opts.NodeName:
		return nil, fmt.Errorf("a pod that is no mirror pod has its name: %w", alreadyExists)
	case pod.DeletionTimestamp != nil:
		return nil, fmt.Errorf("the previous mirror pod is being deleted: %w", alreadyExists)
	}
	return pod, nil
}

// resetWatchSeen prepares a create request: recordCreated then sees whether the watch reports the pod during the request.
func (m *Mirrors) resetWatchSeen(action MirrorAction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.states[action.namespacedName()].watchSeen = false
}

// recordDeleted records that the API server has deleted the mirror pod. The watch may not have reported the deletion yet.
func (m *Mirrors) recordDeleted(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted[mirror.UID] = time.Now()
	if created, ok := m.created[namespacedNameOf(mirror)]; ok && created.pod.UID == mirror.UID {
		delete(m.created, namespacedNameOf(mirror))
	}
}

// recordCreated makes expectedMirrors return the created mirror pod before the watch reports it.
func (m *Mirrors) recordCreated(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// if the watch has reported a pod of this name since the start of the request, the mirror pod may be deleted already
	if seen := m.states[namespacedNameOf(mirror)].watchSeen; !seen {
		m.created[namespacedNameOf(mirror)] = createdMirror{mirror, time.Now()}
	}
}

// expectedMirrors returns the mirror pods that the API server has now, and when a record on which this depends expires;
// zero means never.
func (m *Mirrors) expectedMirrors(now time.Time) (mirrorPods []*corev1.Pod, expiry time.Time) {
	// the watched pods, corrected by creations and deletions that the watch has not reported yet; the caller holds m.mu
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
		expiry = sleep.Earlier(expiry, created.at.Add(watchWait))
	}
	for uid, at := range m.deleted {
		if now.Sub(at) >= watchWait {
			delete(m.deleted, uid)
		} else if watched[string(uid)] {
			expiry = sleep.Earlier(expiry, at.Add(watchWait))
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
	return mirrorPods, expiry
}

// isNameTaken reports whether the node has a pod with this name that is not a mirror pod.
func (m *Mirrors) isNameTaken(namespace, name string) bool {
	pod, ok := m.source.pods.getObject(namespace, name)
	return ok && !qos.IsMirror(pod)
}

// mirrorCount returns the number of mirror pods that the API server lists for the node.
func (p *Pods) mirrorCount() (count int) {
	for _, pod := range p.store.List() {
		if qos.IsMirror(pod) {
			count++
		}
	}
	return count
}

// mirrorOf returns the mirror pod that shows the status of the static pod. ok is false if it is missing, being deleted or
// another pod's.
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
