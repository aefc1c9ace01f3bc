// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// Types of other packages implement the interfaces of this package.
var (
	_ nodestatus.Runtime = cri.StatusReporter(nil)
	_ nodestatus.Images  = cri.Images(nil)
	_ nodestatus.Images  = (*critest.Runtime)(nil)
)

func TestFunctionTypesImplementSources(t *testing.T) {
	var (
		conditions nodestatus.Conditions     = nodestatus.ConditionsFunc(func() nodestatus.Health { return nodestatus.Health{ShuttingDown: true} })
		devices    nodestatus.DeviceCapacity = nodestatus.DeviceCapacityFunc(func() nodestatus.Devices {
			return nodestatus.Devices{Removed: []corev1.ResourceName{"example.com/gpu"}}
		})
		volumes  nodestatus.Volumes  = nodestatus.VolumesFunc(func() ([]corev1.UniqueVolumeName, bool) { return nil, true })
		capacity nodestatus.Capacity = nodestatus.CapacityFunc(func(context.Context) (machine.Info, error) { return machine.Info{CPUs: 1}, nil })
	)
	assert.True(t, conditions.Health().ShuttingDown)
	assert.Len(t, devices.Devices().Removed, 1)
	_, known := volumes.VolumesInUse()
	assert.True(t, known)
	m, err := capacity.Machine(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, 1, m.CPUs)
}

// The size of the root file system is read by a function, not from a file.
func TestRootReadsSizeOfRootFileSystem(t *testing.T) {
	broken := errors.New("statfs: stale NFS file handle")
	for _, test := range []struct {
		name string
		size func(context.Context) (int64, error)
		want int64
		err  error
	}{
		{"not known", nil, 0, nil},
		{"measured", func(context.Context) (int64, error) { return 5, nil }, 5, nil},
		{"fails", func(context.Context) (int64, error) { return 0, broken }, 0, broken},
		{"below nothing", func(context.Context) (int64, error) { return -5, nil }, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := nodestatus.Root{RootFS: test.size, FS: fstest.MapFS{
				"proc/meminfo":                   {Data: []byte("MemTotal: 4 kB\n")},
				"proc/sys/kernel/osrelease":      {Data: []byte("6.12.0\n")},
				"proc/sys/kernel/random/boot_id": {Data: []byte("b1\n")},
				"sys/devices/system/cpu/online":  {Data: []byte("0\n")},
			}}.Machine(t.Context())
			assert.ErrorIs(t, err, test.err)
			assert.Equal(t, test.want, m.RootFS)
			assert.Equal(t, "b1", m.BootID, "all other values are read")
		})
	}
	_, err := nodestatus.Root{}.Machine(t.Context())
	assert.ErrorContains(t, err, `hand in that of its root, on a host os.DirFS("/")`)
}

func TestStartingEvent(t *testing.T) {
	assert.Equal(t, nodestatus.Event{Type: corev1.EventTypeNormal, Reason: "Starting", Message: "Starting kubelet."}, nodestatus.StartingEvent())
}
