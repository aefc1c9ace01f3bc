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
func (m *Mirrors) do(ctx context.Context, action MirrorAction) error {
	pods := kubeapi.In(m.source.client, kubeapi.Pods, action.Namespace)
	if mirror := action.Delete; mirror != nil {
		none := int64(0)
		err := pods.Delete(ctx, mirror.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // of a conflict it is another one by now
			return err
		}
		m.noteDeleted(mirror)
		if apierrors.IsConflict(err) {
			return err
		}
	}
	if action.Create == nil {
		return nil
	}
	m.expect(action)
	created, err := pods.Create(ctx, action.Create)
	if apierrors.IsAlreadyExists(err) {
		created, err = m.existing(ctx, action, err)
		if err == nil {
			m.noteMade(created)
		}
		return err // where it stands for another pod it is replaced
	}
	if err != nil {
		return err
	}
	m.noteMade(created)
	if !mirrors(created, action.Create) {
		return fmt.Errorf("the API server has made another pod of it: annotation %s is %q, not %q",
			annotationMirror, created.Annotations[annotationMirror], action.Create.Annotations[annotationMirror])
	}
	return nil
}

// existing returns the mirror that is there already: of an agent before this one, or of a request whose answer was lost. The
// watch has yet to show it.
func (m *Mirrors) existing(ctx context.Context, action MirrorAction, cause error) (*corev1.Pod, error) {
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
func (m *Mirrors) expect(action MirrorAction) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries[action.name()].told = false
}

func (m *Mirrors) noteDeleted(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted[mirror.UID] = time.Now()
	if claimed, ok := m.made[nameOf(mirror)]; ok && claimed.pod.UID == mirror.UID {
		delete(m.made, nameOf(mirror))
	}
}

// noteMade believes in a mirror until the watch tells of its name. If it has done so since the request began, the mirror may
// have come and gone by now.
func (m *Mirrors) noteMade(mirror *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if told := m.tries[nameOf(mirror)].told; !told {
		m.made[nameOf(mirror)] = createdMirror{mirror, time.Now()}
	}
}

// believed returns the mirror pods that the API server has: those of the watch, without those that it has deleted since and
// with those that it has created. Until is when that is not believed any more. The lock is held.
func (m *Mirrors) believed(now time.Time) (mirrorPods []*corev1.Pod, until time.Time) {
	there := map[string]bool{}
	listed := m.source.pods.store.List()
	for _, pod := range listed {
		there[string(pod.UID)] = true
	}
	for name, claimed := range m.made {
		if there[string(claimed.pod.UID)] || now.Sub(claimed.at) >= unseen {
			delete(m.made, name)
			continue
		}
		until = sleep.Earlier(until, claimed.at.Add(unseen))
	}
	for uid, at := range m.deleted {
		if now.Sub(at) >= unseen {
			delete(m.deleted, uid)
		} else if there[string(uid)] {
			until = sleep.Earlier(until, at.Add(unseen))
		}
	}
	for _, pod := range listed {
		_, deleted := m.deleted[pod.UID]
		_, replaced := m.made[nameOf(pod)]
		if qos.IsMirror(pod) && !deleted && !replaced {
			mirrorPods = append(mirrorPods, pod)
		}
	}
	for _, claimed := range m.made {
		if _, deleted := m.deleted[claimed.pod.UID]; !deleted {
			mirrorPods = append(mirrorPods, claimed.pod)
		}
	}
	return mirrorPods, until
}

// taken reports whether a pod that is no mirror has the name.
func (m *Mirrors) taken(namespace, name string) bool {
	pod, ok := m.source.pods.object(namespace, name)
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
func (p *Pods) mirror(static *corev1.Pod) (*corev1.Pod, bool) {
	if static == nil {
		return nil, false
	}
	mirror, ok := p.object(static.Namespace, static.Name)
	if !ok || !qos.IsMirror(mirror) || mirror.DeletionTimestamp != nil || !mirrors(mirror, static) {
		return nil, false
	}
	return mirror, true
}
