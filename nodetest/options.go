// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Options configures a [Node]. The zero value is a node with the machine of machine.Spec and the kubelet's default configuration.
type Options struct {
	// Name is the name of the node. Empty: "node".
	Name string
	// Machine is the machine of the node. Zero: 4 CPUs and 8 GiB of memory.
	Machine machine.Spec
	// System is the usage of the processes outside of pods, in the cgroup "system". Zero: none.
	System Usage
	// Config is the configuration of the agent, such as evictionHard. Zero: the kubelet's defaults.
	Config agent.Config
	// Behave returns the behavior of a container. ok false, or nil: Selected and then the annotations of the pod decide.
	Behave func(pod *corev1.Pod, container string) (b Behavior, ok bool)
	// Selected has behaviors of containers by the labels of their pods. The first element that selects a container has its behavior. If no element
	// does, the annotations decide. Nil: none.
	Selected []SelectedBehavior
	// Traces are the traces that annotations name. Nil: none.
	Traces map[string]*Trace
	// Adjust may change the options of the agent, for example its Ranker. Nil: no change.
	Adjust func(o *agent.Options)

	// API is the API server in memory. Several nodes may share one. Nil: Kubeconfig decides.
	API *apiservertest.Server
	// Kubeconfig is the file of a real API server whose cluster the node joins. Its user is an administrator or system:node:Name. Empty: the node
	// has a server in memory of its own, see [Node.API].
	Kubeconfig string
	// PodCIDR is the range of pod addresses. Zero: 10.88.0.0/16.
	PodCIDR netip.Prefix
	// Seed selects latencies and the bursts of annotations. Equal seeds and equal calls yield equal events. Zero is a seed.
	Seed uint64
	// Latency returns the latency of a runtime call. Nil: about 250 ms to run a sandbox, 60 ms to create or start a container, 20 ms to stop or
	// remove, 3 ms for others.
	Latency func(op, id string) time.Duration
	// Fault is called for each runtime call. An error fails the call, and a call that blocks until ctx ends hangs. Nil: no faults.
	Fault func(ctx context.Context, op, id string) error
	// Resolution is the interval at which curves are evaluated. Zero: 1 s.
	Resolution time.Duration
	// LogLimit is the number of newest entries that [Node.Log] keeps. Zero: all, or 1,000 with Kubeconfig. Negative: none.
	LogLimit int
	// Logger is the logger of the agent. Nil: no logs.
	Logger *slog.Logger
}

// Behavior is how a container behaves. The zero value runs until it is stopped and uses nothing.
type Behavior struct {
	Usage Usage
	// Exit is how the container exits without a stop signal. Nil: it runs until it is stopped.
	Exit *critest.Exit
	// Stop is how the container exits after the stop signal. Nil: at once, with exit code 128 plus the signal number.
	Stop *critest.Exit
	// StartError is the error with which the start of the container fails. Nil: the container starts.
	StartError error
	// Probe answers probes of all kinds and exec hooks. age is the time since the start of the container; command is that of an exec probe,
	// or the kind of another probe. Nil: all succeed.
	Probe func(ctx context.Context, age time.Duration, command []string) error
}

// withDefaults returns a copy of o in which fields that are zero have their default values.
func (o Options) withDefaults() Options {
	o.Name, o.Resolution = cmp.Or(o.Name, "node"), cmp.Or(o.Resolution, time.Second)
	if o.LogLimit == 0 && o.Kubeconfig != "" {
		o.LogLimit = clusterLogLimit
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Latency == nil {
		seed := o.Seed
		o.Latency = func(op, id string) time.Duration { return defaultLatency(seed, op, id) }
	}
	if o.Fault == nil {
		o.Fault = func(context.Context, string, string) error { return nil }
	}
	if o.Behave == nil {
		o.Behave = func(*corev1.Pod, string) (Behavior, bool) { return Behavior{}, false }
	}
	return o
}

// behaviorOf returns the result of Options.Behave, else of Options.Selected, else of the pod's annotations for the named
// container. An invalid annotation makes the start of the container fail.
func (o *Options) behaviorOf(pod *corev1.Pod, container string) Behavior {
	if b, ok := o.Behave(pod, container); ok {
		return b
	}
	if b, ok := o.selectBehavior(pod, container); ok {
		return b
	}
	b, err := o.parseAnnotations(pod, container)
	if err != nil { // reported with the first start
		b = Behavior{StartError: err}
	}
	return b
}
