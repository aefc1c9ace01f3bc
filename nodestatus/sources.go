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

// Conditions reports pressure and what keeps the node from being ready. It answers from memory.
type Conditions interface{ Health() Health }

// ConditionsFunc makes a func one.
type ConditionsFunc func() Health

// Health calls f.
func (f ConditionsFunc) Health() Health { return f() }

// Capacity reads the machine. What it cannot read is not known in the answer, and part of the error; the rest is worth having.
type Capacity interface {
	Machine(ctx context.Context) (machine.Info, error)
}

// CapacityFunc makes a func one.
type CapacityFunc func(ctx context.Context) (machine.Info, error)

// Machine calls f.
func (f CapacityFunc) Machine(ctx context.Context) (machine.Info, error) { return f(ctx) }

// Root is a [Capacity] that reads the files of a machine.
type Root struct {
	FS fs.FS // the root directory of the machine: os.DirFS("/") on a host
	// RootFS returns how many bytes the file system has that emptyDirs, logs and writable layers are on: package stats measures it.
	// Nil: it is not known, see Config.NoLocalStorageCapacity.
	RootFS func(ctx context.Context) (int64, error)
}

var _ Capacity = Root{}

// Machine returns what the files say.
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

// Images lists images. Every [cri.Images] is one.
type Images interface {
	ListImages(ctx context.Context) ([]cri.Image, error)
}

// DeviceCapacity reports what device plugins have. It answers from memory.
type DeviceCapacity interface{ Devices() Devices }

// DeviceCapacityFunc makes a func one.
type DeviceCapacityFunc func() Devices

// Devices calls f.
func (f DeviceCapacityFunc) Devices() Devices { return f() }

// Volumes reports the attachable volumes that are in use, and false as long as those of an earlier process are being found out. It
// answers from memory.
type Volumes interface {
	VolumesInUse() ([]corev1.UniqueVolumeName, bool)
}

// VolumesFunc makes a func one.
type VolumesFunc func() ([]corev1.UniqueVolumeName, bool)

// VolumesInUse calls f.
func (f VolumesFunc) VolumesInUse() ([]corev1.UniqueVolumeName, bool) { return f() }

// Runtime says which runtime there is and how it is. Every [cri.StatusReporter] is one.
type Runtime interface {
	// Version returns who the runtime is.
	Version(ctx context.Context) (cri.Version, error)
	// Status returns its conditions and features.
	Status(ctx context.Context) (cri.Status, error)
}
