// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// FullRuntime combines cri.Runtime with all optional capabilities of a [SummaryRuntime].
type FullRuntime interface {
	cri.Runtime
	cri.Inspector
	cri.PodLister
	cri.EventStreamer
	cri.Execer
	cri.LogReopener
	cri.Updater
	cri.StatsLister
	cri.PodStatsLister
	cri.StatusReporter
	cri.Images
	cri.Puller
}

// Interceptor wraps a [FullRuntime]. It can delay every call, and let it fail or hang, including the optional capabilities.
//
//	via := &critest.Interceptor{
//		Runtime: critest.SummaryRuntime{Runtime: rt},
//		Latency: func(op, id string) time.Duration { return 20 * time.Millisecond },
//		Around: func(ctx context.Context, op, id string, call func(context.Context) error) error {
//			if op == "ContainerStatus" {
//				return critest.Hang(ctx)
//			}
//			return call(ctx)
//		},
//	}
//
// Its funcs run in the goroutines of the callers and must not be replaced while calls are in progress. op is the CRI name of the
// call, or "List" or "ListPod". id is the ID of the object, the UID of the pod in RunPodSandbox and ListPod, the ID of the
// sandbox in CreateContainer, the name of the image in image calls, or empty. To hide a capability, embed only some of the
// interfaces in a struct.
//
// Half of the Latency passes before the call to the wrapped runtime, and half after it. If the context ends in the first half,
// the call has no effect; in the second half, its result is lost. Events arrive half a Latency after their time. Around may also
// make a call later or with another context. If it returns an error, the caller gets no result.
type Interceptor struct {
	Runtime FullRuntime // the wrapped runtime

	// Latency returns the time that a call takes in addition to the wrapped runtime. If Latency is nil or its result negative,
	// that is zero.
	Latency func(op, id string) time.Duration
	// Around runs in place of every call. It makes the call by calling call, or skips it, and returns the error for the caller.
	// If Around is nil, all calls are made.
	Around func(ctx context.Context, op, id string, call func(context.Context) error) error
}

var _ FullRuntime = (*Interceptor)(nil)

// List lists the sandboxes and containers of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) List(ctx context.Context) (cri.Snapshot, error) {
	return interceptResult(ctx, i, "List", "", i.Runtime.List)
}

// ListPod lists one pod of the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around can
// run in place of the call.
func (i *Interceptor) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	return interceptResultByID(ctx, i, "ListPod", uid, i.Runtime.ListPod)
}

// SandboxStatus returns the status of a sandbox of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) SandboxStatus(ctx context.Context, id string) (cri.Sandbox, error) {
	return interceptResultByID(ctx, i, "PodSandboxStatus", id, i.Runtime.SandboxStatus)
}

// ContainerStatus returns the status of a container of the wrapped runtime. The function i.Latency sets the delay of the call.
// The function i.Around can run in place of the call.
func (i *Interceptor) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	return interceptResultByID(ctx, i, "ContainerStatus", id, i.Runtime.ContainerStatus)
}

// RunSandbox runs a sandbox in the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	return interceptResult(ctx, i, "RunPodSandbox", config.Pod.UID, func(ctx context.Context) (string, error) { return i.Runtime.RunSandbox(ctx, config) })
}

// StopSandbox stops a sandbox of the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) StopSandbox(ctx context.Context, id string) error {
	return i.interceptCall(ctx, "StopPodSandbox", id, i.Runtime.StopSandbox)
}

// RemoveSandbox removes a sandbox of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) RemoveSandbox(ctx context.Context, id string) error {
	return i.interceptCall(ctx, "RemovePodSandbox", id, i.Runtime.RemoveSandbox)
}

// CreateContainer creates a container in the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig) (string, error) {
	return interceptResult(ctx, i, "CreateContainer", sandboxID, func(ctx context.Context) (string, error) {
		return i.Runtime.CreateContainer(ctx, sandboxID, config, sandboxConfig)
	})
}

// StartContainer starts a container of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) StartContainer(ctx context.Context, id string) error {
	return i.interceptCall(ctx, "StartContainer", id, i.Runtime.StartContainer)
}

// StopContainer stops a container of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return i.interceptCall(ctx, "StopContainer", id, func(ctx context.Context, id string) error { return i.Runtime.StopContainer(ctx, id, grace) })
}

// RemoveContainer removes a container of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) RemoveContainer(ctx context.Context, id string) error {
	return i.interceptCall(ctx, "RemoveContainer", id, i.Runtime.RemoveContainer)
}

// StreamEvents streams the events of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	const op = "GetContainerEvents"
	return i.interceptCall(ctx, op, "", func(ctx context.Context, _ string) error {
		return i.Runtime.StreamEvents(ctx, func(e cri.Event) error {
			if err := sleep.For(ctx, time.Until(e.Time.Add(i.halfLatency(op, "")))); err != nil {
				return err
			}
			return fn(e)
		})
	})
}

// ExecSync runs a command in a container of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	return interceptResult(ctx, i, "ExecSync", containerID, func(ctx context.Context) (cri.ExecResult, error) {
		return i.Runtime.ExecSync(ctx, containerID, cmd, timeout)
	})
}

// ReopenContainerLog reopens a log of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) ReopenContainerLog(ctx context.Context, id string) error {
	return i.interceptCall(ctx, "ReopenContainerLog", id, i.Runtime.ReopenContainerLog)
}

// UpdateContainer updates the resources of a container of the wrapped runtime. The function i.Latency sets the delay of the
// call. The function i.Around can run in place of the call.
func (i *Interceptor) UpdateContainer(ctx context.Context, id string, resources *cri.Resources, annotations map[string]string) error {
	return i.interceptCall(ctx, "UpdateContainerResources", id, func(ctx context.Context, id string) error {
		return i.Runtime.UpdateContainer(ctx, id, resources, annotations)
	})
}

// UpdateSandbox updates the resources of a sandbox of the wrapped runtime. The function i.Latency sets the delay of the call.
// The function i.Around can run in place of the call.
func (i *Interceptor) UpdateSandbox(ctx context.Context, id string, overhead, resources *cri.Resources) error {
	return i.interceptCall(ctx, "UpdatePodSandboxResources", id, func(ctx context.Context, id string) error {
		return i.Runtime.UpdateSandbox(ctx, id, overhead, resources)
	})
}
