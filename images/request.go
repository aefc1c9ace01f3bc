// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// Policy decides when an image is pulled, like the imagePullPolicy of a container.
type Policy string

// The pull policies. The empty policy is the default of the API server; see [DefaultPolicy].
const (
	PullAlways       Policy = "Always"
	PullIfNotPresent Policy = "IfNotPresent"
	PullNever        Policy = "Never"
)

// DefaultPolicy returns the pull policy of a container that has none. It is [PullAlways] if the image has the tag "latest",
// or neither a tag nor a digest. Otherwise it is [PullIfNotPresent]. Source: pkg/apis/core/v1/defaults.go.
func DefaultPolicy(image string) Policy {
	if reference.IsLatest(image) {
		return PullAlways
	}
	return PullIfNotPresent
}

// Request is the request of a container for its image, the argument of [Puller.Ensure].
type Request struct {
	Pod            credential.Pod
	Container      string // name of the container, for hooks; may be empty
	Image          string // image name in the container spec
	Policy         Policy
	RuntimeHandler string            // runtime handler of the image; empty: default handler
	Annotations    map[string]string // annotations of the pod, for the runtime
	Secrets        []credential.Secret
	Sandbox        *cri.SandboxConfig // sandbox of the container, for the runtime; may be nil
}
