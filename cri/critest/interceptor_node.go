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

// ContainerStats measures the containers of the wrapped runtime.
func (i *Interceptor) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	return intercept(ctx, i, "ListContainerStats", "", i.Runtime.ContainerStats)
}

// PodContainerStats measures the containers of one sandbox of the wrapped runtime.
func (i *Interceptor) PodContainerStats(ctx context.Context, sandboxID string) ([]cri.ContainerStats, error) {
	return interceptFor(ctx, i, "ListContainerStats", sandboxID, i.Runtime.PodContainerStats)
}

// SandboxStats measures the sandboxes of the wrapped runtime.
func (i *Interceptor) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	return intercept(ctx, i, "ListPodSandboxStats", "", i.Runtime.SandboxStats)
}

// Version asks the wrapped runtime who it is.
func (i *Interceptor) Version(ctx context.Context) (cri.Version, error) {
	return intercept(ctx, i, "Version", "", i.Runtime.Version)
}

// Status asks the wrapped runtime how it is.
func (i *Interceptor) Status(ctx context.Context) (cri.Status, error) {
	return intercept(ctx, i, "Status", "", i.Runtime.Status)
}

// CgroupDriver asks the wrapped runtime for its cgroup driver.
func (i *Interceptor) CgroupDriver(ctx context.Context) (cri.CgroupDriver, error) {
	return intercept(ctx, i, "RuntimeConfig", "", i.Runtime.CgroupDriver)
}

// ListImages lists the images of the wrapped runtime.
func (i *Interceptor) ListImages(ctx context.Context) ([]cri.Image, error) {
	return intercept(ctx, i, "ListImages", "", i.Runtime.ListImages)
}

// ImageStatus reads an image of the wrapped runtime.
func (i *Interceptor) ImageStatus(ctx context.Context, s cri.ImageSpec) (cri.Image, error) {
	return intercept(ctx, i, "ImageStatus", s.Image, func(ctx context.Context) (cri.Image, error) { return i.Runtime.ImageStatus(ctx, s) })
}

// RemoveImage removes an image of the wrapped runtime.
func (i *Interceptor) RemoveImage(ctx context.Context, s cri.ImageSpec) error {
	return i.intercept(ctx, "RemoveImage", s.Image, func(ctx context.Context, _ string) error { return i.Runtime.RemoveImage(ctx, s) })
}

// ImageUsage measures the images of the wrapped runtime.
func (i *Interceptor) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	return intercept(ctx, i, "ImageFsInfo", "", i.Runtime.ImageUsage)
}

// PullImage lets the wrapped runtime pull an image.
func (i *Interceptor) PullImage(ctx context.Context, s cri.ImageSpec, auth *cri.Auth, sandbox *cri.SandboxConfig) (string, error) {
	return intercept(ctx, i, "PullImage", s.Image, func(ctx context.Context) (string, error) {
		return i.Runtime.PullImage(ctx, s, auth, sandbox)
	})
}

// oneWay is the time that half of a call is under way.
func (i *Interceptor) oneWay(op, id string) time.Duration {
	if i.Latency == nil {
		return 0
	}
	return max(i.Latency(op, id), 0) / 2
}

// intercept makes a call about an object that returns nothing.
func (i *Interceptor) intercept(ctx context.Context, op, id string, call func(context.Context, string) error) error {
	_, err := intercept(ctx, i, op, id, func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx, id) })
	return err
}

// interceptFor makes a call about an object.
func interceptFor[T any](ctx context.Context, i *Interceptor, op, id string, call func(context.Context, string) (T, error)) (T, error) {
	return intercept(ctx, i, op, id, func(ctx context.Context) (T, error) { return call(ctx, id) })
}

// intercept makes a call. Around may make it after it has returned, when nobody waits for the result.
func intercept[T any](ctx context.Context, i *Interceptor, op, id string, call func(context.Context) (T, error)) (T, error) {
	result := make(chan T, 1)
	do := func(ctx context.Context) error {
		way := i.oneWay(op, id)
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
			default: // a call that was made twice; the first result counts
			}
		}
		return err
	}
	var none T
	var err error
	if i.Around == nil {
		err = do(ctx)
	} else {
		err = i.Around(ctx, op, id, do)
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

// errNoCall is the answer to a call that Around neither made nor failed.
var errNoCall = errors.New("the call was not made")
