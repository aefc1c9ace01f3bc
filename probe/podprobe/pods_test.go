// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// countingCloser is a prober that counts its Close calls.
type countingCloser struct {
	probe.Func
	closed atomic.Int32
}

func (c *countingCloser) Close() error { c.closed.Add(1); return nil }

// grpcPod is a pod with a gRPC readiness probe in a running set.
type grpcPod struct {
	pod     *corev1.Pod
	pods    *podprobe.Pods
	asked   atomic.Int32
	outcome atomic.Int32
	probers []*countingCloser
}

func startGRPCPod(t *testing.T) *grpcPod {
	h := &grpcPod{}
	p := &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 90}}}
	h.pod = newPod(corev1.Container{Name: "c", ReadinessProbe: p})
	set := probe.NewSet(probe.Options{Rand: func() float64 { return 0 }})
	h.pods = podprobe.NewPods(set, podprobe.Options{GRPC: func(podprobe.GRPCConfig) (probe.Prober, error) {
		c := &countingCloser{Func: func(context.Context) (probe.Result, error) {
			h.asked.Add(1)
			return probe.Result{Outcome: probe.Outcome(h.outcome.Load())}, nil
		}}
		h.probers = append(h.probers, c)
		return c, nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- set.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		for _, c := range h.probers {
			assert.EqualValues(t, 1, c.closed.Load(), "each prober is closed once")
		}
	})
	return h
}

func (h *grpcPod) ready() bool {
	c := &h.pod.Spec.Containers[0]
	return podprobe.Ready(h.pod, c, &h.pod.Status.ContainerStatuses[0], nil, h.pods.Result)
}

// A container becomes ready through its probe. A Sync while it is not ready probes it at once. Its probes are removed with
// its pod.
func TestPodsProbeAndRemove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startGRPCPod(t)
		h.outcome.Store(int32(probe.Failure))
		require.NoError(t, h.pods.Sync(h.pod, &h.pod.Status))
		synctest.Wait()
		assert.False(t, h.ready())
		assert.EqualValues(t, 1, h.asked.Load())

		h.outcome.Store(int32(probe.Success))
		time.Sleep(time.Second)
		require.NoError(t, h.pods.Sync(h.pod, &h.pod.Status))
		synctest.Wait()
		assert.True(t, h.ready(), "the container is probed before the end of its period")
		assert.Len(t, h.probers, 1, "the prober is reused")

		h.pod.Status.ContainerStatuses[0].Ready = true
		require.NoError(t, h.pods.Sync(h.pod, &h.pod.Status))
		synctest.Wait()
		assert.EqualValues(t, 2, h.asked.Load())

		h.pods.Remove(string(h.pod.UID))
		synctest.Wait()
		assert.False(t, h.ready())
		assert.EqualValues(t, 1, h.probers[0].closed.Load())
		time.Sleep(time.Minute)
		assert.EqualValues(t, 2, h.asked.Load())
	})
}

// A pod in a terminal phase has no probes, also without a call of Remove.
func TestPodsRemoveProbesInTerminalPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startGRPCPod(t)
		require.NoError(t, h.pods.Sync(h.pod, &h.pod.Status))
		synctest.Wait()
		h.pod.Status.Phase = corev1.PodSucceeded
		require.NoError(t, h.pods.Sync(h.pod, &h.pod.Status))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, h.asked.Load())
	})
}

// The error of an invalid probe names the pod, the container and the field, and the remaining probes run.
func TestPodsSyncNamesTheInvalidProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startGRPCPod(t)
		bad := h.pod.Spec.Containers[0]
		bad.Name = "bad"
		bad.ReadinessProbe = bad.ReadinessProbe.DeepCopy()
		bad.ReadinessProbe.FailureThreshold = -1
		h.pod.Spec.Containers = append(h.pod.Spec.Containers, bad)
		h.pod.Status.ContainerStatuses = append(h.pod.Status.ContainerStatuses, *runningStatus("bad"))
		h.outcome.Store(int32(probe.Success))
		err := h.pods.Sync(h.pod, &h.pod.Status)
		require.ErrorContains(t, err, `pod shop/web: container "bad": readinessProbe.`)
		require.ErrorContains(t, err, "-1")
		synctest.Wait()
		assert.True(t, h.ready())
	})
}

// Functions of Notify are called when a result of the pod changes, not after each probe.
func TestPodsNotifyOnChangedResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startGRPCPod(t)
		var heard []string
		h.pods.Notify(func(uids ...string) { heard = append(heard, uids...) })
		require.NoError(t, h.pods.Sync(h.pod, &h.pod.Status))
		synctest.Wait()
		heard = nil // drop the calls for the initial value and for the first result
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, heard)
		h.outcome.Store(int32(probe.Success))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{"u1"}, heard)
	})
}
