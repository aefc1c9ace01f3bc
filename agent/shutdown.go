// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
	"github.com/seed81659283/nodeagent/shutdown"
)

// makeInhibitor makes the engine that delays the shutdown of the machine until the pods have terminated. It is nil without a grace period.
func (a *Agent) makeInhibitor() error {
	periods, err := a.config.Kubelet.ShutdownPeriods()
	if err != nil || len(periods) == 0 {
		return err
	}
	n := &a.config.Node
	o := shutdown.Options{
		Periods: periods, Pods: a.runningPods, Stop: a.stopForShutdown,
		Socket: n.SystemBus, ConfigDir: n.LogindConfigDir, StateDir: n.RootDir, Logger: a.log,
	}
	o.Hooks.Begun, o.Hooks.Ended = a.meter.Shutdown()
	if c := a.cluster; c != nil {
		o.Announce, o.Flush = a.node.Reporter.Report, func(ctx context.Context) error { return c.statuses.Flush(ctx) }
		o.Event = func(message string) { c.recorder.NodeEvent(corev1.EventTypeNormal, shutdown.ReasonEvent, message) }
	}
	if a.inhibitor, err = shutdown.New(o); err != nil {
		return err
	}
	a.add("shutdown inhibitor", a.inhibitor.Run)
	return nil
}

// refuseInShutdown is an Admit. It rejects a pod of the cluster while the machine shuts down, so that the pod runs on another node. A static
// pod waits until the machine is up again.
func (a *Agent) refuseInShutdown(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
	switch {
	case !a.inhibitor.ShuttingDown():
		return nil
	case qos.IsStatic(pod):
		return errors.New("the machine is shutting down")
	}
	return &podstatus.Rejection{Reason: shutdown.ReasonRejected, Message: shutdown.MessageRejected}
}

// runningPods returns the pods that have not terminated.
func (a *Agent) runningPods() (pods []*corev1.Pod) {
	for _, p := range a.pods.Pods() {
		if p.Spec != nil && (p.Status == nil || !podstatus.Terminal(p.Status.Phase)) {
			pods = append(pods, p.Spec)
		}
	}
	return pods
}

// stopForShutdown terminates a pod, and returns when no container of it runs and none of its volumes is mounted. A static pod is started again
// after the machine was, which is long after the back-off.
func (a *Agent) stopForShutdown(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
	err := a.pods.Evict(ctx, string(pod.UID), podstatus.Eviction{
		Reason: shutdown.ReasonTerminated, Message: shutdown.MessageTerminated, Conditions: []corev1.PodCondition{shutdown.Condition()},
		Grace: grace, Hold: qos.IsStatic(pod),
	})
	if errors.Is(err, cri.ErrNotFound) {
		return nil // the pod has ended meanwhile
	}
	return err
}
