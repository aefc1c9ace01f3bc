// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// ImageSource makes container images present on the node. The interface of the same name in package lifecycle documents the
// contract.
type ImageSource interface {
	// Ensure returns the image of c, which it pulls if necessary.
	Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *cri.SandboxConfig) (cri.Image, error)
}

// imageHolder is an optional interface of an [ImageSource]; see lifecycle.ImageHolder. Hold protects an image from garbage
// collection until release is called.
type imageHolder interface {
	Hold(image string) (release func())
}
