// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "strconv"

// SandboxState reports whether a sandbox can run containers.
type SandboxState uint8

// The states of a sandbox.
const (
	SandboxReady SandboxState = iota
	SandboxNotReady
)

// String returns "ready" or "notready".
func (s SandboxState) String() string { return name(s, "ready", "notready") }

// ContainerState is the state of a container instance. It only advances: created, running, exited.
type ContainerState uint8

// The states of a container.
const (
	ContainerCreated ContainerState = iota
	ContainerRunning
	ContainerExited
	ContainerUnknown // the runtime cannot determine the state
)

// String returns "created", "running", "exited" or "unknown".
func (s ContainerState) String() string {
	return name(s, "created", "running", "exited", "unknown")
}

// name returns the name of an enumeration value: names[v], or v as a decimal number if names has no element v.
func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return strconv.Itoa(int(v))
}
