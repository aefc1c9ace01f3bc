// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import "fmt"

// Kind is what a probe is for.
type Kind uint8

// The kinds of probes.
const (
	// Startup probes find out when a container has started. Its other probes wait for that.
	Startup Kind = iota
	// Readiness probes find out whether a container takes requests.
	Readiness
	// Liveness probes find out when a container has to be restarted.
	Liveness
)

// String returns the kind as the kubelet writes it in events and metrics: "Startup", "Readiness" or "Liveness".
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

// Key names a probe. A container has at most one of each kind.
type Key struct {
	PodUID    string
	Container string // the name, which stays when the container is restarted
	Kind      Kind
}

// String returns the key as it is put in errors and logs.
func (k Key) String() string {
	return fmt.Sprintf("%s probe of container %q of pod %q", k.Kind, k.Container, k.PodUID)
}
