// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Facts has the inputs of [Build] and [Initial], from which they build a Node object. Facts must not be modified after a call.
type Facts struct {
	Config Config
	Now    time.Time // time stamp of conditions

	Host    Host         // addresses
	Machine machine.Info // the zero value: not read yet
	Runtime RuntimeState
	Health  Health
	Devices Devices

	// Images of the runtime, in any order. If ImagesKnown is false they were not read yet, and the Node object keeps its images.
	Images      []cri.Image
	ImagesKnown bool

	// VolumesInUse are the attachable volumes of pods, in any order. If VolumesKnown is false the list is incomplete, and the
	// Node object keeps its list: the attach-detach controller must not detach a mounted volume.
	VolumesInUse []corev1.UniqueVolumeName
	VolumesKnown bool

	// Announced are the events that this process has emitted, see [Announced.WithEvents].
	Announced Announced
}

// Health has the state of the node for its conditions. The zero value is a healthy node without pressure.
type Health struct {
	MemoryPressure, DiskPressure, PIDPressure bool

	// Unhealthy are failed health checks of the agent, such as "PLEG is not healthy: ...": the node is not ready.
	Unhealthy []error
	// Storage is the reason why CSI volumes cannot be mounted: the node is not ready.
	Storage error
	// ShuttingDown means that the machine shuts down: the node is not ready.
	ShuttingDown bool
	// Warning is appended to the message of condition Ready, without effect on its status.
	Warning error
}

// Devices has the capacity and the allocatable amounts of extended resources, as reported by device plugins.
type Devices struct {
	Capacity, Allocatable corev1.ResourceList
	// Removed are resources whose plugins have been unregistered. Their capacity is reported as zero.
	Removed []corev1.ResourceName
}
