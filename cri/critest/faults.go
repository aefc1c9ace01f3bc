// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// Faults is a runtime whose calls can go wrong. A func that is set answers the call in the place of the wrapped
// runtime, which it is handed: it may call it and change the answer, lose the answer, call it late, or not at all.
//
//	f := &critest.Faults{Runtime: rt}
//	f.StartContainerFunc = func(ctx context.Context, next cri.Runtime, id string) error {
//		_ = next.StartContainer(ctx, id) // it took effect,
//		return cri.ErrUnavailable        // but the connection broke before the answer
//	}
//
// The funcs are called from the goroutines that make the calls and may not be changed while there are any: a fault
// that comes and goes decides inside its func. Around is called before the func of a call. Its op is the CRI's name of the
// call, or "List"; its id is that of the object, or the UID of the pod in RunPodSandbox and of the sandbox in CreateContainer.
// When the call succeeded and Around returns an error, the caller gets no result.
//
// A Faults is a cri.Runtime and nothing else, so that what it cannot fault it does not claim; [Interceptor] faults
// the capabilities too. Capabilities of the wrapped runtime are passed on by embedding them beside it:
//
//	struct {
//		*critest.Faults
//		cri.EventStreamer
//		cri.PodLister
//	}{f, rt, rt}
type Faults struct {
	Runtime cri.Runtime // the wrapped runtime

	// Around is called for every call, which call makes. Nil makes each call.
	Around func(ctx context.Context, op, id string, call func() error) error

	ListFunc            func(ctx context.Context, next cri.Runtime) (cri.Snapshot, error)
	RunSandboxFunc      func(ctx context.Context, next cri.Runtime, c *cri.SandboxConfig) (string, error)
	StopSandboxFunc     func(ctx context.Context, next cri.Runtime, id string) error
	RemoveSandboxFunc   func(ctx context.Context, next cri.Runtime, id string) error
	CreateContainerFunc func(ctx context.Context, next cri.Runtime, sandboxID string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error)
	StartContainerFunc  func(ctx context.Context, next cri.Runtime, id string) error
	StopContainerFunc   func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error
	RemoveContainerFunc func(ctx context.Context, next cri.Runtime, id string) error
}

var _ cri.Runtime = (*Faults)(nil)

// Hang blocks until ctx ends, as a call to a runtime that is stuck does.
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// List calls ListFunc or the wrapped runtime.
func (f *Faults) List(ctx context.Context) (cri.Snapshot, error) {
	return around(ctx, f, "List", "", func() (cri.Snapshot, error) {
		if f.ListFunc != nil {
			return f.ListFunc(ctx, f.Runtime)
		}
		return f.Runtime.List(ctx)
	})
}

// RunSandbox calls RunSandboxFunc or the wrapped runtime.
func (f *Faults) RunSandbox(ctx context.Context, c *cri.SandboxConfig) (string, error) {
	return around(ctx, f, "RunPodSandbox", c.Pod.UID, func() (string, error) {
		if f.RunSandboxFunc != nil {
			return f.RunSandboxFunc(ctx, f.Runtime, c)
		}
		return f.Runtime.RunSandbox(ctx, c)
	})
}

// StopSandbox calls StopSandboxFunc or the wrapped runtime.
func (f *Faults) StopSandbox(ctx context.Context, id string) error {
	return f.around(ctx, "StopPodSandbox", id, f.StopSandboxFunc, f.Runtime.StopSandbox)
}

// RemoveSandbox calls RemoveSandboxFunc or the wrapped runtime.
func (f *Faults) RemoveSandbox(ctx context.Context, id string) error {
	return f.around(ctx, "RemovePodSandbox", id, f.RemoveSandboxFunc, f.Runtime.RemoveSandbox)
}

// CreateContainer calls CreateContainerFunc or the wrapped runtime.
func (f *Faults) CreateContainer(ctx context.Context, sandboxID string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error) {
	return around(ctx, f, "CreateContainer", sandboxID, func() (string, error) {
		if f.CreateContainerFunc != nil {
			return f.CreateContainerFunc(ctx, f.Runtime, sandboxID, c, s)
		}
		return f.Runtime.CreateContainer(ctx, sandboxID, c, s)
	})
}

// StartContainer calls StartContainerFunc or the wrapped runtime.
func (f *Faults) StartContainer(ctx context.Context, id string) error {
	return f.around(ctx, "StartContainer", id, f.StartContainerFunc, f.Runtime.StartContainer)
}

// StopContainer calls StopContainerFunc or the wrapped runtime.
func (f *Faults) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := around(ctx, f, "StopContainer", id, func() (struct{}, error) {
		if f.StopContainerFunc != nil {
			return struct{}{}, f.StopContainerFunc(ctx, f.Runtime, id, grace)
		}
		return struct{}{}, f.Runtime.StopContainer(ctx, id, grace)
	})
	return err
}

// RemoveContainer calls RemoveContainerFunc or the wrapped runtime.
func (f *Faults) RemoveContainer(ctx context.Context, id string) error {
	return f.around(ctx, "RemoveContainer", id, f.RemoveContainerFunc, f.Runtime.RemoveContainer)
}

// around makes a call that takes an ID and returns nothing.
func (f *Faults) around(ctx context.Context, op, id string,
	fault func(context.Context, cri.Runtime, string) error, call func(context.Context, string) error,
) error {
	_, err := around(ctx, f, op, id, func() (struct{}, error) {
		if fault != nil {
			return struct{}{}, fault(ctx, f.Runtime, id)
		}
		return struct{}{}, call(ctx, id)
	})
	return err
}

// around makes a call that has a result.
func around[T any](ctx context.Context, f *Faults, op, id string, call func() (T, error)) (result T, err error) {
	if f.Around == nil {
		return call()
	}
	err = f.Around(ctx, op, id, func() (err error) {
		result, err = call()
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}
