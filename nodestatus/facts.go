// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Facts is everything that a Node object is made from. It is a value: who has got it may keep it, and nobody writes to it.
type Facts struct {
	Config Config
	Now    time.Time // what conditions are stamped with

	Host    Host         // addresses
	Machine machine.Info // the zero value: not known yet
	Runtime RuntimeState
	Health  Health
	Devices Devices

	// Images of the runtime, in any order. ImagesKnown false: nothing is known of them, and the Node object keeps its own.
	Images      []cri.Image
	ImagesKnown bool

	// VolumesInUse are attachable volumes that pods use, in any order. VolumesKnown false: they are still being found out, and the
	// Node object keeps its own, so that nothing is detached that is mounted.
	VolumesInUse []corev1.UniqueVolumeName
	VolumesKnown bool

	// Announced is which events this process has emitted already, see [Announced.After].
	Announced Announced
}

// Health is what the conditions of a node are made from. The zero value is a node without pressure or complaint.
type Health struct {
	MemoryPressure, DiskPressure, PIDPressure bool

	// Unhealthy are checks of the agent's own that fail, such as "PLEG is not healthy: ...": the node is not ready.
	Unhealthy []error
	// Storage is why volumes of CSI drivers cannot be mounted: the node is not ready.
	Storage error
	// ShuttingDown: the machine is, so the node is not ready.
	ShuttingDown bool
	// Warning is appended to the message of a node that may be ready nevertheless.
	Warning error
}

// Devices is what device plugins have.
type Devices struct {
	Capacity, Allocatable corev1.ResourceList
	// Removed are resources whose plugins are gone: they are reported with a capacity of zero.
	Removed []corev1.ResourceName
}
