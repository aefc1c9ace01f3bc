// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// ImageSource makes images present on the node. lifecycle.ImageSource has the contract of the method.
type ImageSource interface {
	// Ensure returns the image of a container once it is present.
	Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error)
}

// imageHolder has the method of lifecycle.ImageHolder, an optional interface of an ImageSource.
type imageHolder interface {
	Hold(image string) (release func())
}
