// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// ImageSource makes the image of a container present on the node. It may take as long as a pull takes; it ends
// when ctx does. An error that is a [*StartError] names the reason that the container's status shows.
type ImageSource interface {
	Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error)
}

// StartError is why a container was not started, with the reason for its status.
type StartError struct {
	Reason string // such as ErrImagePull or RunContainerError
	Err    error
}

// Error returns "Reason: cause".
func (e *StartError) Error() string { return e.Reason + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// PullPolicy is an [ImageSource] that pulls by the container's imagePullPolicy, without credentials and one image at
// a time for each container; a policy that is not set means IfNotPresent.
type PullPolicy struct {
	Images cri.Images
	Puller cri.Puller
}

var _ ImageSource = PullPolicy{}

// Ensure looks the image up and pulls it where the policy says so.
func (p PullPolicy) Ensure(
	ctx context.Context, _ *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig,
) (cri.Image, error) {
	spec := cri.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image, RuntimeHandler: sandbox.RuntimeHandler}
	if c.ImagePullPolicy != corev1.PullAlways {
		switch image, err := p.Images.ImageStatus(ctx, spec); {
		case err == nil:
			return image, nil
		case !errors.Is(err, cri.ErrNotFound):
			return cri.Image{}, &StartError{Reason: ReasonImageInspectError, Err: err}
		case c.ImagePullPolicy == corev1.PullNever:
			return cri.Image{}, &StartError{Reason: ReasonErrImageNeverPull, Err: err}
		}
	}
	ref, err := p.Puller.PullImage(ctx, spec, nil, sandbox)
	if err != nil {
		return cri.Image{}, &StartError{Reason: ReasonErrImagePull, Err: err}
	}
	image, err := p.Images.ImageStatus(ctx, cri.ImageSpec{Image: ref, RuntimeHandler: sandbox.RuntimeHandler})
	if err != nil {
		return cri.Image{}, &StartError{Reason: ReasonImageInspectError, Err: err}
	}
	return image, nil
}
