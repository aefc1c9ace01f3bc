// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// FullRuntime is a runtime with each capability of package cri that a [SummaryRuntime] has.
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

// Interceptor is a [FullRuntime] runtime whose calls, those of the capabilities too, take time and can go wrong.
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
// Its funcs are called from the goroutines that make the calls, and may not be changed while there are any. The op that
// they get is the CRI's name of the call, or "List" or "ListPod"; the id is that of the object, the UID of the pod in
// RunPodSandbox and ListPod, of the sandbox in CreateContainer, the name of the image in calls about images, and empty
// where a call is about no object. What a user of the runtime should not find is hidden by a struct that embeds only some of
// the interfaces.
//
// A call is under way for half of its Latency before the wrapped runtime is called, and for half of it after. A context that
// ends on the way there keeps the call from taking effect; on the way back it loses the answer. Events arrive half a latency
// after they were made. Around may also make a call later, and with another context; when it returns an error, the caller gets
// no result.
type Interceptor struct {
	Runtime FullRuntime // the wrapped runtime

	// Latency is how long a call is under way. Nil, and what is not positive, is no time.
	Latency func(op, id string) time.Duration
	// Around makes the call, or does not, and may change or replace its error. Nil makes each call.
	Around func(ctx context.Context, op, id string, call func(context.Context) error) error
}

var _ FullRuntime = (*Interceptor)(nil)

// List lists the wrapped runtime.
func (i *Interceptor) List(ctx context.Context) (cri.Snapshot, error) {
	return intercept(ctx, i, "List", "", i.Runtime.List)
}

// ListPod lists one pod of the wrapped runtime.
func (i *Interceptor) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	return interceptFor(ctx, i, "ListPod", uid, i.Runtime.ListPod)
}

// SandboxStatus reads a sandbox of the wrapped runtime.
func (i *Interceptor) SandboxStatus(ctx context.Context, id string) (cri.Sandbox, error) {
	return interceptFor(ctx, i, "PodSandboxStatus", id, i.Runtime.SandboxStatus)
}

// ContainerStatus reads a container of the wrapped runtime.
func (i *Interceptor) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	return interceptFor(ctx, i, "ContainerStatus", id, i.Runtime.ContainerStatus)
}

// RunSandbox runs a sandbox in the wrapped runtime.
func (i *Interceptor) RunSandbox(ctx context.Context, c *cri.SandboxConfig) (string, error) {
	return intercept(ctx, i, "RunPodSandbox", c.Pod.UID, func(ctx context.Context) (string, error) { return i.Runtime.RunSandbox(ctx, c) })
}

// StopSandbox stops a sandbox of the wrapped runtime.
func (i *Interceptor) StopSandbox(ctx context.Context, id string) error {
	return i.intercept(ctx, "StopPodSandbox", id, i.Runtime.StopSandbox)
}

// RemoveSandbox removes a sandbox of the wrapped runtime.
func (i *Interceptor) RemoveSandbox(ctx context.Context, id string) error {
	return i.intercept(ctx, "RemovePodSandbox", id, i.Runtime.RemoveSandbox)
}

// CreateContainer creates a container in the wrapped runtime.
func (i *Interceptor) CreateContainer(ctx context.Context, sandboxID string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error) {
	return intercept(ctx, i, "CreateContainer", sandboxID, func(ctx context.Context) (string, error) {
		return i.Runtime.CreateContainer(ctx, sandboxID, c, s)
	})
}

// StartContainer starts a container of the wrapped runtime.
func (i *Interceptor) StartContainer(ctx context.Context, id string) error {
	return i.intercept(ctx, "StartContainer", id, i.Runtime.StartContainer)
}

// StopContainer stops a container of the wrapped runtime.
func (i *Interceptor) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return i.intercept(ctx, "StopContainer", id, func(ctx context.Context, id string) error { return i.Runtime.StopContainer(ctx, id, grace) })
}

// RemoveContainer removes a container of the wrapped runtime.
func (i *Interceptor) RemoveContainer(ctx context.Context, id string) error {
	return i.intercept(ctx, "RemoveContainer", id, i.Runtime.RemoveContainer)
}

// StreamEvents streams the events of the wrapped runtime.
func (i *Interceptor) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	const op = "GetContainerEvents"
	return i.intercept(ctx, op, "", func(ctx context.Context, _ string) error {
		return i.Runtime.StreamEvents(ctx, func(e cri.Event) error {
			if err := sleep.For(ctx, time.Until(e.Time.Add(i.oneWay(op, "")))); err != nil {
				return err
			}
			return fn(e)
		})
	})
}

// ExecSync runs a command in a container of the wrapped runtime.
func (i *Interceptor) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	return intercept(ctx, i, "ExecSync", containerID, func(ctx context.Context) (cri.ExecResult, error) {
		return i.Runtime.ExecSync(ctx, containerID, cmd, timeout)
	})
}

// ReopenContainerLog reopens a log of the wrapped runtime.
func (i *Interceptor) ReopenContainerLog(ctx context.Context, id string) error {
	return i.intercept(ctx, "ReopenContainerLog", id, i.Runtime.ReopenContainerLog)
}

// UpdateContainer changes a container of the wrapped runtime.
func (i *Interceptor) UpdateContainer(ctx context.Context, id string, r *cri.Resources, annotations map[string]string) error {
	return i.intercept(ctx, "UpdateContainerResources", id, func(ctx context.Context, id string) error {
		return i.Runtime.UpdateContainer(ctx, id, r, annotations)
	})
}

// UpdateSandbox changes a sandbox of the wrapped runtime.
func (i *Interceptor) UpdateSandbox(ctx context.Context, id string, overhead, resources *cri.Resources) error {
	return i.intercept(ctx, "UpdatePodSandboxResources", id, func(ctx context.Context, id string) error {
		return i.Runtime.UpdateSandbox(ctx, id, overhead, resources)
	})
}
