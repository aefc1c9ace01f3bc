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

// GRPCConfig is the configuration of a gRPC probe, as grpcprobe.Config needs it.
type GRPCConfig struct {
	Host    string // the pod's IP address
	Port    int
	Service string
	TLS     bool
}

// Options configure how probers are created.
type Options struct {
	// Execer runs the commands of exec probes. If it is nil, [Pods.Check] rejects pods with exec probes.
	Execer probe.Execer
	// GRPC creates the prober of a gRPC probe, for example with grpcprobe.New. If it is nil, [Pods.Check] rejects pods
	// with gRPC probes.
	GRPC func(GRPCConfig) (probe.Prober, error)
	// Pool holds the idle connections of HTTP probes. If it is nil, each probe opens and closes its own connection.
	Pool *httpprobe.Pool
	// FreshConnections opens a new connection for each HTTP probe even with a Pool, as the kubelet does.
	FreshConnections bool
}

// Targets returns the targets for the probes of a pod, and an error for each probe that can never run. The status must be
// the published one, because its Started fields decide whether a container with a startup probe has started. A pod in a
// terminal phase has no targets. A probe with invalid numbers has no target; if this is a startup probe, the other probes of
// the container have none either.
//
// The argument previous is the result of the last call for this pod, or nil. Targets reuses the probers of unchanged
// containers, so that their connections stay open.
func Targets(
	pod *corev1.Pod, status *corev1.PodStatus, previous []probe.Target, opts Options,
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
					break // the remaining probes would wait for it
				}
				continue
			}
			if status.PodIP == "" && needsIP(spec) {
				t.ContainerID, t.Running = "", false // the container counts as not created
			}
			h := proberBuilder{podIP: status.PodIP, container: c, containerID: t.ContainerID, options: opts}
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

// fieldError adds the names of the pod, the container and the probe to an error that starts with a field of the probe.
func fieldError(pod *corev1.Pod, container *corev1.Container, kind probe.Kind, err error) error {
	return fmt.Errorf("pod %s/%s: container %q: %sProbe.%w", pod.Namespace, pod.Name, container.Name, kindName(kind), err)
}

// podProber is a prober that remains valid while the container instance and the pod IP are unchanged.
type podProber struct {
	probe.Prober
	podIP string
}

// closablePodProber is a podProber whose prober holds a connection. Only these implement io.Closer, because a set tracks each
// prober that it must close.
type closablePodProber struct {
	*podProber
	io.Closer
}

// newPodProber returns a prober with the pod IP that it was created for, which decides whether it can be reused.
func newPodProber(prober probe.Prober, podIP string) probe.Prober {
	m := &podProber{prober, podIP}
	if c, ok := prober.(io.Closer); ok {
		return &closablePodProber{m, c}
	}
	return m
}

// servesAt reports whether the prober was created for this pod IP.
func (m *podProber) servesAt(podIP string) bool { return m.podIP == podIP }

// reuseProber returns the previous prober of a target if it has the same pod IP, or nil.
func reuseProber(previous []probe.Target, target probe.Target, podIP string) probe.Prober {
	for i := range previous {
		if previous[i].Key != target.Key || previous[i].ContainerID != target.ContainerID {
			continue
		}
		if old, ok := previous[i].Prober.(interface{ servesAt(podIP string) bool }); ok && old.servesAt(podIP) {
			return previous[i].Prober // all other inputs of a prober are immutable
		}
	}
	return nil
}

// newTarget returns a probe target with the fields that all probes of the container have in common, such as the container ID.
// The caller sets the remaining fields. A nil status means that the container was not created.
func newTarget(pod *corev1.Pod, container *corev1.Container, status *corev1.ContainerStatus) probe.Target {
	t := probe.Target{
		Key: probe.Key{PodUID: string(pod.UID), Container: container.Name},
		// A sidecar is probed until the regular containers have terminated.
		Terminating: pod.DeletionTimestamp != nil && !isSidecar(&pod.Spec, container),
	}
	if status == nil {
		return t
	}
	t.ContainerID = containerID(status)
	if status.State.Running != nil {
		t.Running, t.StartedAt = true, status.State.Running.StartedAt.Time
		t.Started = container.StartupProbe == nil || status.Started != nil && *status.Started
	}
	return t
}

// newSpec converts the schedule and the thresholds of a probe. Zero fields mean the API defaults.
func newSpec(spec *corev1.Probe) probe.Spec {
	return probe.Spec{
		InitialDelay:     time.Duration(spec.InitialDelaySeconds) * time.Second,
		Period:           time.Duration(spec.PeriodSeconds) * time.Second,
		Timeout:          time.Duration(spec.TimeoutSeconds) * time.Second,
		SuccessThreshold: int(spec.SuccessThreshold),
		FailureThreshold: int(spec.FailureThreshold),
	}
}
