// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// ContainerStats measures the containers of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	return interceptResult(ctx, i, "ListContainerStats", "", i.Runtime.ContainerStats)
}

// PodContainerStats measures the containers of one sandbox of the wrapped runtime. The function i.Latency sets the delay of the
// call. The function i.Around can run in place of the call.
func (i *Interceptor) PodContainerStats(ctx context.Context, sandboxID string) ([]cri.ContainerStats, error) {
	return interceptResultByID(ctx, i, "ListContainerStats", sandboxID, i.Runtime.PodContainerStats)
}

// SandboxStats measures the sandboxes of the wrapped runtime. The function i.Latency sets the delay of the call. The function
// i.Around can run in place of the call.
func (i *Interceptor) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	return interceptResult(ctx, i, "ListPodSandboxStats", "", i.Runtime.SandboxStats)
}

// Version returns the version of the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) Version(ctx context.Context) (cri.Version, error) {
	return interceptResult(ctx, i, "Version", "", i.Runtime.Version)
}

// Status returns the status of the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) Status(ctx context.Context) (cri.Status, error) {
	return interceptResult(ctx, i, "Status", "", i.Runtime.Status)
}

// CgroupDriver returns the cgroup driver of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) CgroupDriver(ctx context.Context) (cri.CgroupDriver, error) {
	return interceptResult(ctx, i, "RuntimeConfig", "", i.Runtime.CgroupDriver)
}

// ListImages lists the images of the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) ListImages(ctx context.Context) ([]cri.Image, error) {
	return interceptResult(ctx, i, "ListImages", "", i.Runtime.ListImages)
}

// ImageStatus returns the status of an image of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) ImageStatus(ctx context.Context, image cri.ImageSpec) (cri.Image, error) {
	return interceptResult(ctx, i, "ImageStatus", image.Image, func(ctx context.Context) (cri.Image, error) { return i.Runtime.ImageStatus(ctx, image) })
}

// RemoveImage removes an image of the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) RemoveImage(ctx context.Context, image cri.ImageSpec) error {
	return i.interceptCall(ctx, "RemoveImage", image.Image, func(ctx context.Context, _ string) error { return i.Runtime.RemoveImage(ctx, image) })
}

// ImageUsage measures the image file systems of the wrapped runtime. The function i.Latency sets the delay of the call. The
// function i.Around can run in place of the call.
func (i *Interceptor) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	return interceptResult(ctx, i, "ImageFsInfo", "", i.Runtime.ImageUsage)
}

// PullImage pulls an image with the wrapped runtime. The function i.Latency sets the delay of the call. The function i.Around
// can run in place of the call.
func (i *Interceptor) PullImage(ctx context.Context, image cri.ImageSpec, auth *cri.Auth, sandbox *cri.SandboxConfig) (string, error) {
	return interceptResult(ctx, i, "PullImage", image.Image, func(ctx context.Context) (string, error) {
		return i.Runtime.PullImage(ctx, image, auth, sandbox)
	})
}

// halfLatency returns half of the latency of a call.
func (i *Interceptor) halfLatency(op, id string) time.Duration {
	if i.Latency == nil {
		return 0
	}
	return max(i.Latency(op, id), 0) / 2
}

// interceptCall calls a method of the wrapped runtime: the function call. The function Latency of the interceptor sets the
// delay of the call. Its function Around can run in place of the call.
func (i *Interceptor) interceptCall(ctx context.Context, op, id string, call func(context.Context, string) error) error {
	_, err := interceptResult(ctx, i, op, id, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx, id) })
	return err
}

// interceptResultByID calls a method of the wrapped runtime, the function call, with id, and returns its result. The function
// Latency of the interceptor sets the delay of the call. Its function Around can run in place of the call.
func interceptResultByID[T any](ctx context.Context, interceptor *Interceptor, op, id string, call func(context.Context, string) (T, error)) (T, error) {
	return interceptResult(ctx, interceptor, op, id, func(ctx context.Context) (T, error) { return call(ctx, id) })
}

// interceptResult calls a method of the wrapped runtime, the function call, and returns its result. The function Latency of the
// interceptor sets the delay of the call. Its function Around can run in place of the call.
func interceptResult[T any](ctx context.Context, interceptor *Interceptor, op, id string, call func(context.Context) (T, error)) (T, error) {
	// Buffered, because Around may return before it has made the call: the result is then dropped.
	result := make(chan T, 1)
	do := func(ctx context.Context) error {
		way := interceptor.halfLatency(op, id)
		if err := sleep.For(ctx, way); err != nil {
			return &cri.Error{Op: op, ID: id, Err: err}
		}
		r, err := call(ctx)
		if lost := sleep.For(ctx, way); lost != nil && err == nil && way > 0 {
			err = &cri.Error{Op: op, ID: id, Err: lost}
		}
		if err == nil {
			select {
			case result <- r:
			default: // Around made the call twice: the first result is used
			}
		}
		return err
	}
	var none T
	var err error
	if interceptor.Around == nil {
		err = do(ctx)
	} else {
		err = interceptor.Around(ctx, op, id, do)
	}
	if err != nil {
		return none, err
	}
	select {
	case r := <-result:
		return r, nil
	default:
		return none, &cri.Error{Op: op, ID: id, Err: errNoCall}
	}
}

// errNoCall is returned if Around neither made the call nor returned an error.
var errNoCall = errors.New("the call was not made")
