// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// Policy is when to pull. The values are those of a container's imagePullPolicy.
type Policy string

// The pull policies. An empty one is what the API server would fill in; see [DefaultPolicy].
const (
	PullAlways       Policy = "Always"
	PullIfNotPresent Policy = "IfNotPresent"
	PullNever        Policy = "Never"
)

// DefaultPolicy returns the policy of a container that names none: [PullAlways] for the tag "latest", said or meant,
// and [PullIfNotPresent] for everything else. Source: pkg/apis/core/v1/defaults.go.
func DefaultPolicy(image string) Policy {
	if reference.IsLatest(image) {
		return PullAlways
	}
	return PullIfNotPresent
}

// Request is what a container needs.
type Request struct {
	Pod            credential.Pod
	Container      string // its name, for hooks; may be empty
	Image          string // as it stands in the container
	Policy         Policy
	RuntimeHandler string            // whose images are meant; empty: the default's
	Annotations    map[string]string // of the pod, for the runtime
	Secrets        []credential.Secret
	Sandbox        *cri.SandboxConfig // that the image is for; may be nil
}
