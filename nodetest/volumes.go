// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// volumes prepares the volumes of pods. Each volume exists at once, on the disk of the machine, and is removed with its pod.
type volumes struct{ kernel *kernel }

var _ lifecycle.PodResources = (*volumes)(nil)

// Check accepts all volumes.
func (v *volumes) Check(*corev1.Pod) field.ErrorList { return nil }

// Prepare does nothing.
func (v *volumes) Prepare(context.Context, *corev1.Pod) error { return nil }

// Container does nothing, because simulated containers have no mounts.
func (v *volumes) Container(context.Context, *corev1.Pod, *corev1.Container, *podspec.Launch) error {
	return nil
}

// Update does nothing.
func (v *volumes) Update(*corev1.Pod) {}

// Release removes the files in the volumes of a pod.
func (v *volumes) Release(_ context.Context, uid string) error {
	v.kernel.machine.RemoveFiles(uid)
	return nil
}
