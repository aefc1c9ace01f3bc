// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/shutdown"
)

// inhibitShutdown creates the shutdown inhibitor if grace periods are configured. It delays a shutdown of the machine until the pods have terminated.
func (a *Agent) inhibitShutdown(context.Context, *lifecycle.Options) error {
	periods, err := a.config.Kubelet.ShutdownPeriods()
	if err != nil || len(periods) == 0 {
		return err
	}
	n := &a.config.Node
	o := shutdown.Options{
		Periods: periods, Socket: n.SystemBus, ConfigDir: n.LogindConfigDir, StateDir: n.RootDir, Logger: a.log,
	}
	o.Hooks.ShutdownStarted, o.Hooks.ShutdownCompleted = a.metrics.Shutdown()
	if c := a.cluster; c != nil {
		o.ReportNotReady, o.FlushStatuses = a.node.Report, c.Statuses.Flush
		o.Event = func(message string) { c.Recorder.NodeEvent(corev1.EventTypeNormal, shutdown.ReasonEvent, message) }
	}
	if a.inhibitor, err = shutdown.NewForPods(&a.pods, o); err != nil {
		return err
	}
	a.checks = append(a.checks, a.inhibitor.Admit)
	a.parts.Add("shutdown inhibitor", a.inhibitor.Run)
	return nil
}

// createEvictor creates the evictor. While the node is short of memory, disk space or PIDs, the evictor evicts pods.
func (a *Agent) createEvictor(context.Context, *lifecycle.Options) error {
	measurer := a.options.Measurer
	if measurer == nil && a.collector != nil {
		measurer = a.collector
	}
	rules, err := a.config.Kubelet.EvictionRules()
	if err != nil || measurer == nil || len(rules.Thresholds) == 0 {
		return err
	}
	for _, contradiction := range eviction.FindContradictions(rules.Thresholds) {
		a.log.Warn("thresholds of evictions", "error", contradiction)
	}
	rules.Ranker = a.options.Ranker
	conditions := eviction.Hooks{ConditionsChanged: func([]eviction.Condition) { a.node.Changed() }}
	// Without a cluster, static pods are evicted too, unlike in the kubelet. Hold makes them run again after the node has recovered.
	options := podevict.NodeOptions{
		Measurer: measurer, Pods: func() podevict.Pods { return &a.pods }, Hold: a.cluster == nil,
		Images: a.unused, RuntimePods: a.generator.Pods, Event: a.recordAnnotatedEvent,
		Eviction: eviction.Options{Logger: a.log, Rules: rules, Hooks: a.metrics.Eviction(a.options.Hooks.Eviction, conditions)},
	}
	if a.cgroups.tree != nil {
		options.Cgroups, options.Path, options.Machine = a.cgroups.driver, a.cgroups.tree.Path, a.cgroups.machine
	}
	node, err := podevict.NewNode(options)
	if err != nil {
		return err
	}
	a.evictor, a.checks = node.Evictor(), append(a.checks, node.Admit)
	a.parts.Add("evictor", node.Run)
	return nil
}

// createPreemptor adds the last admission check: the node must have enough free resources. For a critical pod, this check evicts other pods.
func (a *Agent) createPreemptor(_ context.Context, opts *lifecycle.Options) error {
	if a.cluster == nil {
		return nil
	}
	preemptor, err := podevict.NewPreemptor(podevict.PreemptorOptions{
		Node: func() *corev1.Node { return a.placed.WithoutDevices(a.node.Node()) }, Pods: &a.pods, Event: a.recordEvent, Preempted: a.metrics.Preempted,
	})
	if err != nil {
		return err
	}
	a.checks = append(a.checks, preemptor.Admit)
	opts.AdmitChecksNodeAffinity, opts.AdmitResize = true, admission.ChainResize(opts.AdmitResize, preemptor.AdmitResize)
	return nil
}
