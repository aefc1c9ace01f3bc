// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// Reconciler runs the pods of a node. *lifecycle.Reconciler and *lifecycle.Handle implement it.
type Reconciler interface {
	// Pods returns the pods of the node, see [lifecycle.Reconciler.Pods].
	Pods() []lifecycle.PodState
	// Evict terminates a pod, see [lifecycle.Reconciler.Evict].
	Evict(ctx context.Context, uid string, e podstatus.Eviction) error
}

// NewForPods returns an inhibitor that stops the pods of r: [New] with Options.Pods and Options.Stop set. Pods get the reason and the condition of a
// kubelet. A static pod is held back: it is started again after the machine was.
func NewForPods(r Reconciler, o Options) (*Inhibitor, error) {
	if r == nil {
		return nil, errors.New("shutdown: NewForPods: the reconciler is nil: pass a *lifecycle.Reconciler or a *lifecycle.Handle")
	}
	o.Pods = func() []*corev1.Pod { return runningPods(r) }
	o.Stop = func(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
		return stopPod(ctx, r, pod, grace)
	}
	return New(o)
}

// runningPods returns the pods of r that have not terminated.
func runningPods(r Reconciler) (pods []*corev1.Pod) {
	for _, p := range r.Pods() {
		if p.Spec != nil && (p.Status == nil || !podstatus.IsTerminal(p.Status.Phase)) {
			pods = append(pods, p.Spec)
		}
	}
	return pods
}

// stopPod terminates a pod of r, and returns when no container of it runs and none of its volumes is mounted.
func stopPod(ctx context.Context, r Reconciler, pod *corev1.Pod, grace time.Duration) error {
	err := r.Evict(ctx, string(pod.UID), podstatus.Eviction{
		Reason: ReasonTerminated, Message: MessageTerminated, Conditions: []corev1.PodCondition{condition()}, Grace: grace, Temporary: qos.IsStatic(pod),
	})
	if errors.Is(err, cri.ErrNotFound) {
		return nil // the pod has terminated meanwhile
	}
	return err
}

// Admit is a [lifecycle.Admit]. While the machine shuts down it rejects pods of the API server, so that their controllers replace them on other
// nodes. For a static pod it returns another error: the pod waits until the machine is up again.
func (i *Inhibitor) Admit(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
	switch {
	case !i.ShuttingDown():
		return nil
	case qos.IsStatic(pod):
		return errors.New("the machine is shutting down")
	}
	return &podstatus.Rejection{Reason: ReasonRejected, Message: MessageRejected}
}

// condition returns the condition of a pod that is terminated for a shutdown.
func condition() corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: MessageTerminated,
	}
}
