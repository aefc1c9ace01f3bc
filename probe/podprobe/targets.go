// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
)

// GRPC says what a gRPC probe asks. It is what package grpcprobe wants to know.
type GRPCConfig struct {
	Host    string // the pod's IP address
	Port    int
	Service string
	TLS     bool
}

// Options say how probes are made.
type Options struct {
	// Execer runs the commands of exec probes. Nil: [Pods.Check] refuses pods that have some.
	Execer probe.Execer
	// GRPC makes the probers of gRPC probes, with grpcprobe.New for one. Nil: [Pods.Check] refuses pods that have some.
	GRPC func(GRPCConfig) (probe.Prober, error)
	// Pool keeps the connections of HTTP probes. Nil gives each probe its own, opened and closed each time.
	Pool *httpprobe.Pool
	// FreshConnections opens a connection for each HTTP probe, also with a Pool, as the kubelet does.
	FreshConnections bool
}

// Targets returns the probes of a pod, and an error for each that can never be made. The status is the one that is
// published: Started counts for containers that have a startup probe. A pod in a terminal phase has no probes. A probe whose
// numbers are invalid has no target, and neither have those that wait for it.
//
// Previous is what the last call returned for the same pod, nil for the first: the probers of containers that are still
// there are taken over from it, with their connections.
func Targets(
	pod *corev1.Pod, status *corev1.PodStatus, previous []probe.Target, o Options,
) (targets []probe.Target, errs []error) {
	if status.Phase == corev1.PodFailed || status.Phase == corev1.PodSucceeded {
		return nil, nil
	}
	for c := range listProbedContainers(&pod.Spec) {
		base := newTarget(pod, c, findStatus(status, c.Name))
		for kind, spec := range listProbes(c) {
			t := base
			t.Kind, t.Spec = kind, newSpec(spec)
			if err := t.Spec.Validate(); err != nil {
				errs = append(errs, fieldError(pod, c, kind, err))
				if kind == probe.Startup && !t.Started {
					break // the others would wait for it
				}
				continue
			}
			if status.PodIP == "" && needsIP(spec) {
				t.ContainerID, t.Running = "", false // as good as not there
			}
			h := proberBuilder{podIP: status.PodIP, container: c, containerID: t.ContainerID, options: o}
			var err error
			if t.Prober = reuseProber(previous, t, status.PodIP); t.Prober == nil {
				t.Prober, err = h.newProber(spec)
			}
			if err != nil {
				errs = append(errs, fieldError(pod, c, kind, err))
			}
			targets = append(targets, t)
		}
	}
	return targets, errs
}

// mistake says where something is wrong.
func fieldError(pod *corev1.Pod, c *corev1.Container, kind probe.Kind, err error) error {
	return fmt.Errorf("pod %s/%s: container %q: %sProbe.%w", pod.Namespace, pod.Name, c.Name, kindName(kind), err)
}

// made is a prober that serves as long as the container and the address of the pod stay what they are.
type podProber struct {
	probe.Prober
	podIP string
}

// closing is a made whose prober keeps something open. No other is an io.Closer: a set remembers each that it has to
// close.
type closablePodProber struct {
	*podProber
	io.Closer
}

// newMade wraps a prober.
func newPodProber(p probe.Prober, podIP string) probe.Prober {
	m := &podProber{p, podIP}
	if c, ok := p.(io.Closer); ok {
		return &closablePodProber{m, c}
	}
	return m
}

// servesAt reports whether the prober is of an address.
func (m *podProber) servesAt(podIP string) bool { return m.podIP == podIP }

// takeOver returns the prober that there is for a target already, or nil. All else that probers are made of is as
// immutable as the container.
func reuseProber(previous []probe.Target, t probe.Target, podIP string) probe.Prober {
	for i := range previous {
		if previous[i].Key != t.Key || previous[i].ContainerID != t.ContainerID {
			continue
		}
		if old, ok := previous[i].Prober.(interface{ servesAt(podIP string) bool }); ok && old.servesAt(podIP) {
			return previous[i].Prober
		}
	}
	return nil
}

// observe returns what is the same for all probes of a container.
func newTarget(pod *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) probe.Target {
	t := probe.Target{
		Key: probe.Key{PodUID: string(pod.UID), Container: c.Name},
		// A sidecar is probed until the regular containers have terminated.
		Terminating: pod.DeletionTimestamp != nil && !isSidecar(&pod.Spec, c),
	}
	if st == nil {
		return t
	}
	t.ContainerID = containerID(st)
	if st.State.Running != nil {
		t.Running, t.StartedAt = true, st.State.Running.StartedAt.Time
		t.Started = c.StartupProbe == nil || st.Started != nil && *st.Started
	}
	return t
}

// schedule translates when to probe and how to count. What is zero has the API's default in both, but for the period,
// which has to be there.
func newSpec(p *corev1.Probe) probe.Spec {
	return probe.Spec{
		InitialDelay:     time.Duration(p.InitialDelaySeconds) * time.Second,
		Period:           time.Duration(p.PeriodSeconds) * time.Second,
		Timeout:          time.Duration(p.TimeoutSeconds) * time.Second,
		SuccessThreshold: int(p.SuccessThreshold),
		FailureThreshold: int(p.FailureThreshold),
	}
}
