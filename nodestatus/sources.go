// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Conditions returns the state of the node for its conditions: resource pressure, and reasons why it is not ready. Health must
// not block.
type Conditions interface{ Health() Health }

// ConditionsFunc implements [Conditions] with a function.
type ConditionsFunc func() Health

// Health calls f.
func (f ConditionsFunc) Health() Health { return f() }

// Capacity reads the hardware and operating system of the machine. If values cannot be read, they are zero and the error names
// them. The other values are valid nevertheless.
type Capacity interface {
	Machine(ctx context.Context) (machine.Info, error)
}

// CapacityFunc implements [Capacity] with a function.
type CapacityFunc func(ctx context.Context) (machine.Info, error)

// Machine calls f.
func (f CapacityFunc) Machine(ctx context.Context) (machine.Info, error) { return f(ctx) }

// Root implements [Capacity]. It reads files below the root directory of a machine.
type Root struct {
	FS fs.FS // the root directory of the machine: os.DirFS("/") on a host
	// RootFS returns the size in bytes of the file system with emptyDirs, logs and writable layers; package stats measures it.
	// Nil: the size is unknown, see Config.NoLocalStorageCapacity.
	RootFS func(ctx context.Context) (int64, error)
}

var _ Capacity = Root{}

// Machine returns the hardware and operating system of the machine. If r.RootFS is set, it also returns the size of the root
// file system.
func (r Root) Machine(ctx context.Context) (machine.Info, error) {
	m, err := machine.Read(r.FS)
	if r.RootFS != nil {
		size, sizeErr := r.RootFS(ctx)
		if sizeErr != nil {
			sizeErr = fmt.Errorf("read size of root file system: %w", sizeErr)
		}
		m.RootFS, err = max(size, 0), errors.Join(err, sizeErr)
	}
	return m, err
}

// Images lists the images of the container runtime. cri.Images implements it.
type Images interface {
	ListImages(ctx context.Context) ([]cri.Image, error)
}

// DeviceCapacity returns the extended resources that device plugins have reported. Devices must not block.
type DeviceCapacity interface{ Devices() Devices }

// DeviceCapacityFunc implements [DeviceCapacity] with a function.
type DeviceCapacityFunc func() Devices

// Devices calls f.
func (f DeviceCapacityFunc) Devices() Devices { return f() }

// Volumes returns the attachable volumes of pods, for status.volumesInUse. The bool is false until the agent has restored the
// volumes of its previous process: the list is then incomplete. VolumesInUse must not block.
type Volumes interface {
	VolumesInUse() ([]corev1.UniqueVolumeName, bool)
}

// VolumesFunc implements [Volumes] with a function.
type VolumesFunc func() ([]corev1.UniqueVolumeName, bool)

// VolumesInUse calls f.
func (f VolumesFunc) VolumesInUse() ([]corev1.UniqueVolumeName, bool) { return f() }

// Runtime reads the version and status of the container runtime. [cri.StatusReporter] implements it.
type Runtime interface {
	// Version returns name and version of the runtime.
	Version(ctx context.Context) (cri.Version, error)
	// Status returns the conditions and features of the runtime.
	Status(ctx context.Context) (cri.Status, error)
}
