// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "fmt"

// Kind is the kind of a probe: startup, readiness or liveness.
type Kind uint8

// The kinds of probes.
const (
	// Startup probes detect that a container has started. Its other probes wait for them.
	Startup Kind = iota
	// Readiness probes detect whether a container can serve requests.
	Readiness
	// Liveness probes detect that a container must be restarted.
	Liveness
)

// String returns the name of the kind as in the kubelet's events and metrics: "Startup", "Readiness" or "Liveness".
func (k Kind) String() string {
	switch k {
	case Startup:
		return "Startup"
	case Readiness:
		return "Readiness"
	case Liveness:
		return "Liveness"
	default:
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
}

// Key identifies a probe. A container has at most one probe of each kind.
type Key struct {
	PodUID    string
	Container string // the name in the pod spec, equal for all instances of the container
	Kind      Kind
}

// String returns the pod, the container and the kind of the probe as one text, for errors and logs.
func (k Key) String() string {
	return fmt.Sprintf("%s probe of container %q of pod %q", k.Kind, k.Container, k.PodUID)
}
