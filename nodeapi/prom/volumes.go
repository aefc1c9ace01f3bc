// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
)

type volumeMetrics struct {
	group  *group
	took   *histogram
	errors *counter
}

// storageBuckets returns the histogram buckets for durations of volume operations, in seconds.
func storageBuckets() []float64 {
	return []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600}
}

func (m *Metrics) buildVolumes(group *group) {
	m.volumes = volumeMetrics{
		group: group,
		took: group.addHistogram("storage_operation_duration_seconds", "How long an operation on a volume took.", storageBuckets(),
			"volume_plugin", "operation_name", "status", "migrated"),
		errors: group.addCounter("nodeagent_volume_errors_total", "Errors that concern no single volume."),
	}
}

// Volumes returns hooks for package volume that record its metrics. They also call the additional hooks.
func (m *Metrics) Volumes(additional ...volume.Hooks) volume.Hooks {
	v := &m.volumes
	v.group.enabled.Store(true)
	return volume.Hooks{
		Event: func(pod *corev1.Pod, eventType, reason, message string) {
			callHooks(additional, func(h volume.Hooks) {
				if h.Event != nil {
					h.Event(pod, eventType, reason, message)
				}
			})
		},
		StepCompleted: func(plugin string, step volume.Step, took time.Duration, err error) {
			v.took.observe(took, plugin, volumeOperation(step), volumeStatus(err), "false")
			callHooks(additional, func(h volume.Hooks) {
				if h.StepCompleted != nil {
					h.StepCompleted(plugin, step, took, err)
				}
			})
		},
		Expanded: func(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, size int64) {
			callHooks(additional, func(h volume.Hooks) { callHook3(h.Expanded, pvc, pv, size) })
		},
		Error: func(err error) {
			v.errors.inc()
			callHooks(additional, func(h volume.Hooks) { callHook(h.Error, err) })
		},
	}
}

// volumeOperation returns the kubelet's label value for a step of a volume's setup or teardown, such as "volume_mount".
func volumeOperation(step volume.Step) string {
	switch step {
	case volume.StepTearDown:
		return "volume_unmount"
	case volume.StepStage:
		return "mount_device"
	case volume.StepUnstage:
		return "unmount_device"
	default: // StepSetUp, and StepUpdate, which the kubelet counts as a mount too
		return "volume_mount"
	}
}

func volumeStatus(err error) string {
	if err != nil {
		return "fail-unknown"
	}
	return "success"
}

type csiMetrics struct {
	group *group
	took  *histogram
}

func (m *Metrics) buildCSI(group *group) {
	m.csi = csiMetrics{
		group: group,
		took: group.addHistogram("csi_operations_seconds", "How long calls of CSI drivers took.", storageBuckets(),
			"driver_name", "method_name", "grpc_status_code", "migrated"),
	}
}

// CSI returns a function for the hook CallCompleted of package volume/csi, which records the duration of each call to a CSI
// driver. The label for the gRPC code is err.Code(), if this method exists and returns a string. It also calls the additional
// functions.
func (m *Metrics) CSI(additional ...func(driver, method string, took time.Duration, err error)) func(driver, method string, took time.Duration, err error) {
	c := &m.csi
	c.group.enabled.Store(true)
	return func(driver, method string, took time.Duration, err error) {
		c.took.observe(took, driver, "/csi.v1.Node/"+method, grpcCode(err), "false")
		for _, hook := range additional {
			if hook != nil {
				hook(driver, method, took, err)
			}
		}
	}
}

// grpcCode returns the label value for the gRPC code of err, for example "DeadlineExceeded".
func grpcCode(err error) string {
	var coded interface{ Code() string }
	switch {
	case err == nil:
		return "OK"
	case errors.As(err, &coded):
		return coded.Code()
	default:
		return "unknown-non-grpc"
	}
}
