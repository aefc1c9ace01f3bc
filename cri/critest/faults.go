// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Faults wraps a runtime and lets its calls go wrong. Each func that is set replaces one call. Its next argument is the wrapped
// runtime, so that it can make the call and change its result, lose the result, delay the call, or skip it.
//
//	f := &critest.Faults{Runtime: rt}
//	f.StartContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
//		_ = next.StartContainer(ctx, id) // it took effect,
//		return cri.ErrUnavailable        // but the connection broke before the response
//	}
//
// The funcs run in the goroutines of the callers and must not be replaced while calls are in progress: a temporary fault decides
// inside its func. Around runs before the func of a call. Its op is the CRI name of the call, or "List". Its id is the ID of the
// object, the UID of the pod in RunPodSandbox, or the ID of the sandbox in CreateContainer. If Around returns an error, the
// caller gets no result, even if the call succeeded.
//
// Faults implements cri.Runtime only; [Interceptor] also covers the optional capabilities. To pass on capabilities of the wrapped
// runtime without faults, embed them beside a Faults:
//
//	struct {
//		*critest.Faults
//		cri.EventStreamer
//		cri.PodLister
//	}{f, rt, rt}
type Faults struct {
	Runtime cri.Runtime // the wrapped runtime

	// Around runs in place of every call. It makes the call by calling call, or skips it, and returns the error for the caller.
	// If Around is nil, all calls are made.
	Around func(ctx context.Context, op, id string, call func() error) error

	ListFunc            func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error)
	RunSandboxFunc      func(ctx context.Context, next cri.Runtime, config *cri.SandboxConfig) (string, error)
	StopSandboxFunc     func(ctx context.Context, next cri.Runtime, id string) error
	RemoveSandboxFunc   func(ctx context.Context, next cri.Runtime, id string) error
	CreateContainerFunc func(ctx context.Context, next cri.Runtime, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig) (string, error)
	StartContainerFunc  func(ctx context.Context, next cri.Runtime, id string) error
	StopContainerFunc   func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error
	RemoveContainerFunc func(ctx context.Context, next cri.Runtime, id string) error
}

var _ cri.Runtime = (*Faults)(nil)

// Hang blocks until ctx ends, like a call to a hung runtime, and returns ctx.Err().
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// List calls f.ListFunc, or List of the wrapped runtime if f.ListFunc is nil. f.Around may skip the call.
func (f *Faults) List(ctx context.Context) (cri.Snapshot, error) {
	return callAround(ctx, f, "List", "", func() (cri.Snapshot, error) {
		if f.ListFunc != nil {
			return f.ListFunc(ctx, f.Runtime)
		}
		return f.Runtime.List(ctx)
	})
}

// RunSandbox calls f.RunSandboxFunc, or RunSandbox of the wrapped runtime if f.RunSandboxFunc is nil. f.Around may skip the
// call.
func (f *Faults) RunSandbox(ctx context.Context, config *cri.SandboxConfig) (string, error) {
	return callAround(ctx, f, "RunPodSandbox", config.Pod.UID, func() (string, error) {
		if f.RunSandboxFunc != nil {
			return f.RunSandboxFunc(ctx, f.Runtime, config)
		}
		return f.Runtime.RunSandbox(ctx, config)
	})
}

// StopSandbox calls f.StopSandboxFunc, or StopSandbox of the wrapped runtime if f.StopSandboxFunc is nil. f.Around may skip
// the call.
func (f *Faults) StopSandbox(ctx context.Context, id string) error {
	return f.callWithFault(ctx, "StopPodSandbox", id, f.StopSandboxFunc, f.Runtime.StopSandbox)
}

// RemoveSandbox calls f.RemoveSandboxFunc, or RemoveSandbox of the wrapped runtime if f.RemoveSandboxFunc is nil. f.Around
// may skip the call.
func (f *Faults) RemoveSandbox(ctx context.Context, id string) error {
	return f.callWithFault(ctx, "RemovePodSandbox", id, f.RemoveSandboxFunc, f.Runtime.RemoveSandbox)
}

// CreateContainer calls f.CreateContainerFunc, or CreateContainer of the wrapped runtime if f.CreateContainerFunc is nil.
// f.Around may skip the call.
func (f *Faults) CreateContainer(ctx context.Context, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.SandboxConfig) (string, error) {
	return callAround(ctx, f, "CreateContainer", sandboxID, func() (string, error) {
		if f.CreateContainerFunc != nil {
			return f.CreateContainerFunc(ctx, f.Runtime, sandboxID, config, sandboxConfig)
		}
		return f.Runtime.CreateContainer(ctx, sandboxID, config, sandboxConfig)
	})
}

// StartContainer calls f.StartContainerFunc, or StartContainer of the wrapped runtime if f.StartContainerFunc is nil.
// f.Around may skip the call.
func (f *Faults) StartContainer(ctx context.Context, id string) error {
	return f.callWithFault(ctx, "StartContainer", id, f.StartContainerFunc, f.Runtime.StartContainer)
}

// StopContainer calls f.StopContainerFunc, or StopContainer of the wrapped runtime if f.StopContainerFunc is nil. f.Around
// may skip the call.
func (f *Faults) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := callAround(ctx, f, "StopContainer", id, func() (struct{}, error) {
		if f.StopContainerFunc != nil {
			return struct{}{}, f.StopContainerFunc(ctx, f.Runtime, id, grace)
		}
		return struct{}{}, f.Runtime.StopContainer(ctx, id, grace)
	})
	return err
}

// RemoveContainer calls f.RemoveContainerFunc, or RemoveContainer of the wrapped runtime if f.RemoveContainerFunc is nil.
// f.Around may skip the call.
func (f *Faults) RemoveContainer(ctx context.Context, id string) error {
	return f.callWithFault(ctx, "RemoveContainer", id, f.RemoveContainerFunc, f.Runtime.RemoveContainer)
}

// callWithFault calls fault, or call if fault is nil. Faults.Around may skip the call.
func (f *Faults) callWithFault(ctx context.Context, op, id string,
	fault func(context.Context, cri.Runtime, string) error, call func(context.Context, string) error,
) error {
	_, err := callAround(ctx, f, op, id, func() (struct{}, error) {
		if fault != nil {
			return struct{}{}, fault(ctx, f.Runtime, id)
		}
		return struct{}{}, call(ctx, id)
	})
	return err
}

// callAround returns the result of call. Faults.Around may skip the call.
func callAround[T any](ctx context.Context, faults *Faults, op, id string, call func() (T, error)) (result T, err error) {
	if faults.Around == nil {
		return call()
	}
	err = faults.Around(ctx, op, id, func() (err error) {
		result, err = call()
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}
