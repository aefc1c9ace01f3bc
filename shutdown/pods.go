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

// NewForPods returns an Inhibitor that stops the pods of reconciler: it calls [New] with opts.Pods and opts.Stop set. The
// stopped pods get the kubelet's reason and condition. A static pod is evicted temporarily and runs again after the reboot.
func NewForPods(reconciler Reconciler, opts Options) (*Inhibitor, error) {
	if reconciler == nil {
		return nil, errors.New("shutdown: NewForPods: the reconciler is nil: pass a *lifecycle.Reconciler or a *lifecycle.Handle")
	}
	opts.Pods = func() []*corev1.Pod { return runningPods(reconciler) }
	opts.Stop = func(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
		return stopPod(ctx, reconciler, pod, grace)
	}
	return New(opts)
}

// runningPods returns the pods of reconciler that have not reached a terminal phase.
func runningPods(reconciler Reconciler) (pods []*corev1.Pod) {
	for _, p := range reconciler.Pods() {
		if p.Spec != nil && (p.Status == nil || !podstatus.IsTerminal(p.Status.Phase)) {
			pods = append(pods, p.Spec)
		}
	}
	return pods
}

// stopPod terminates a pod with the given grace period. It returns when the containers have exited and the volumes are
// unmounted.
func stopPod(ctx context.Context, reconciler Reconciler, pod *corev1.Pod, grace time.Duration) error {
	err := reconciler.Evict(ctx, string(pod.UID), podstatus.Eviction{
		Reason: ReasonTerminated, Message: MessageTerminated, Conditions: []corev1.PodCondition{disruptionCondition()}, Grace: grace, Temporary: qos.IsStatic(pod),
	})
	if errors.Is(err, cri.ErrNotFound) {
		return nil // the pod has terminated in the meantime
	}
	return err
}

// Admit returns an error for each pod while the machine is shutting down: use it as lifecycle.Admit. A pod of the API server is
// rejected, so that its controller replaces it on another node. A static pod stays pending until after the reboot.
func (i *Inhibitor) Admit(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
	switch {
	case !i.ShuttingDown():
		return nil
	case qos.IsStatic(pod):
		return errors.New("the machine is shutting down")
	}
	return &podstatus.Rejection{Reason: ReasonRejected, Message: MessageRejected}
}

// disruptionCondition returns the condition DisruptionTarget, for a pod that is terminated by a shutdown of the machine.
func disruptionCondition() corev1.PodCondition {
	return corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: MessageTerminated,
	}
}
