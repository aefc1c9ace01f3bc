// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/nodestatus/shutdown"
	"github.com/seed81659283/nodeagent/qos"
)

// shutdownConfig is the part of the config that says how long the machine waits for its pods when it is shut down, with the names of the
// kubelet's.
type shutdownConfig struct {
	ShutdownGracePeriod         metav1.Duration `json:"shutdownGracePeriod"`             // for all pods; zero, and nothing by priority: the machine does not wait
	ShutdownGracePeriodCritical metav1.Duration `json:"shutdownGracePeriodCriticalPods"` // how much of it is for critical pods
	ShutdownByPriority          []shutdownGroup `json:"shutdownGracePeriodByPodPriority"`
	SystemBus                   string          `json:"systemBus"`       // socket of the message bus that logind is on; empty: the system's
	LogindConfigDir             string          `json:"logindConfigDir"` // where logind is told how long to wait; empty: the system's
}

// shutdownGroup is how long the pods of a priority have.
type shutdownGroup struct {
	Priority int32 `json:"priority"`
	Seconds  int64 `json:"shutdownGracePeriodSeconds"`
}

// periods returns how long which pods have; none: the machine does not wait.
func (c *shutdownConfig) periods() ([]shutdown.Period, error) {
	total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCritical.Duration
	switch {
	case len(c.ShutdownByPriority) > 0 && total != 0:
		return nil, errors.New("shutdownGracePeriodByPodPriority and shutdownGracePeriod are both set")
	case total < 0 || critical < 0 || critical > total:
		return nil, fmt.Errorf("shutdownGracePeriodCriticalPods: %s must be between 0 and shutdownGracePeriod, which is %s", critical, total)
	case total%time.Second != 0 || critical%time.Second != 0:
		return nil, fmt.Errorf("shutdownGracePeriod: %s and %s must be whole seconds", total, critical)
	}
	periods := shutdown.Periods(total, critical)
	for i, g := range c.ShutdownByPriority {
		same := func(other shutdownGroup) bool { return other.Priority == g.Priority }
		if g.Seconds < 0 || slices.ContainsFunc(c.ShutdownByPriority[:i], same) {
			return nil, fmt.Errorf("shutdownGracePeriodByPodPriority[%d]: %d s for priority %d must not be negative, nor there twice", i, g.Seconds, g.Priority)
		}
		periods = append(periods, shutdown.Period{Priority: g.Priority, GracePeriod: time.Duration(g.Seconds) * time.Second})
	}
	return periods, nil
}

// inhibitShutdown has the machine wait for its pods when it is shut down, and lets none begin by then.
func (a *agent) inhibitShutdown(o *lifecycle.Options) error {
	periods, err := a.periods()
	if err != nil || len(periods) == 0 {
		return err
	}
	opts := shutdown.Options{
		Periods: periods, Pods: a.unterminated, Stop: a.stopForShutdown,
		Socket: a.SystemBus, ConfigDir: a.LogindConfigDir, StateDir: a.StateDir, Logger: a.log,
	}
	opts.Hooks.Begun, opts.Hooks.Ended = a.meter.Shutdown()
	if c := a.cluster; c != nil {
		opts.Announce, opts.Flush = c.reporter.Report, func(ctx context.Context) error { return c.statuses.Flush(ctx) }
		opts.Event = func(message string) { c.recorder.NodeEvent(corev1.EventTypeNormal, shutdown.ReasonEvent, message) }
	}
	if a.inhibitor, err = shutdown.New(opts); err != nil {
		return err
	}
	before := o.Admit
	o.Admit = func(ctx context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
		if a.inhibitor.ShuttingDown() {
			return a.refuseInShutdown(pod)
		}
		if before == nil {
			return nil
		}
		return before(ctx, pod, others)
	}
	a.parts = append(a.parts, a.inhibitor.Run)
	return nil
}

// refuseInShutdown has a pod of the cluster fail, so that it can run elsewhere. A static pod waits for the machine to be up again.
func (a *agent) refuseInShutdown(pod *corev1.Pod) error {
	if qos.IsStatic(pod) {
		return errors.New("the machine is shutting down")
	}
	return &lifecycle.Rejection{Reason: shutdown.ReasonRejected, Message: shutdown.MessageRejected}
}

// unterminated returns the pods of which something may run.
func (a *agent) unterminated() (pods []*corev1.Pod) {
	for _, p := range a.Pods() {
		if p.Spec != nil && (p.Status == nil || !podstatus.Terminal(p.Status.Phase)) {
			pods = append(pods, p.Spec)
		}
	}
	return pods
}

// stopForShutdown returns when nothing of a pod is up, and none of its volumes mounted. A static pod is started again after the machine
// was, which is long after the back-off.
func (a *agent) stopForShutdown(ctx context.Context, pod *corev1.Pod, grace time.Duration) error {
	err := a.Evict(ctx, string(pod.UID), lifecycle.Eviction{
		Reason: shutdown.ReasonTerminated, Message: shutdown.MessageTerminated, Conditions: []corev1.PodCondition{shutdown.Condition()},
		Grace: grace, Hold: qos.IsStatic(pod),
	})
	if errors.Is(err, cri.ErrNotFound) {
		return nil // it has gone meanwhile
	}
	return err
}
