// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevents

import (
	"time"
)

// ContainerStart is the record of one attempt to start a container, or to run a postStart hook that a previous agent process has
// not completed.
type ContainerStart struct {
	Container string
	Type      ContainerType
	ID        string // container ID; empty: the container was not created
	Attempt   uint32
	Took      time.Duration // duration of the attempt with the image pull and the postStart hook
	Err       error         // nil: the container runs; often a *podstatus.StartError
}

// SandboxStart is a record of one attempt to run the sandbox of a pod.
type SandboxStart struct {
	Attempt        uint32
	RuntimeHandler string // empty: the default handler
	UserNamespace  bool   // the pod has its own user namespace
	Took           time.Duration
	Err            error // nil: the sandbox runs
}

// ContainerType says in which list of the pod spec a container is.
type ContainerType string

// The types of containers, in the words of the kubelet's label.
const (
	RegularContainer   ContainerType = "container"
	InitContainer      ContainerType = "init_container" // also a sidecar
	EphemeralContainer ContainerType = "ephemeral_container"
)
