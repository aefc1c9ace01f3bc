// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// PodResources sets up and releases the resources of a pod other than its sandbox and containers, such as volumes.
// *volume.Volumes implements it.
//
// The calls for one pod are sequential. Calls for different pods are concurrent. Each call must return when ctx ends; one that
// does not delays its pod. Prepare and Release have about two minutes, and are retried after an error.
type PodResources interface {
	// Check returns an error for each field of a valid pod that requests a resource which is not supported. It does no I/O.
	Check(pod *corev1.Pod) field.ErrorList
	// Prepare sets up the resources of a pod, and returns when they are ready. It is called before the sandbox is created and
	// before each start of containers. If the resources are ready already, it must return quickly. After a failed Prepare,
	// Release undoes its work.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container adds the mounts and devices of a container to launch, from which the config of the container is built. It is called before each
	// start and after Prepare.
	Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error
	// Update refreshes the resources of a pod whose object has changed, for example its labels. It is called only while a source
	// lists the pod, and once after the agent has started. It does not block.
	Update(pod *corev1.Pod)
	// Release tears down all resources of the pod with this UID, before its directory and cgroup are removed. It is called when
	// no container of the pod runs, also for an orphaned pod of which only the record on disk remains. A pod without resources is
	// no error. After an error Release is called again, and the pod is not removed until it succeeds.
	Release(ctx context.Context, uid string) error
}
