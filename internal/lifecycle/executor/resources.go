// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// PodResources are what a pod has on its node beside its sandbox and containers, such as volumes. Calls for one pod come one
// after the other; those for several do not wait for each other. All end when ctx does: a call that hangs delays its pod.
// A Prepare and a Release have some two minutes, and are called again. Package lifecycletest has one in memory.
type PodResources interface {
	// Check returns an error for each field of a valid pod that asks for something that cannot be had. It is quick and asks
	// nobody.
	Check(pod *corev1.Pod) field.ErrorList
	// Prepare makes ready what a pod needs, and returns when it is. It is called before the sandbox and before each start of
	// containers, and is quick where nothing is left to do. What it has made when it fails is given back by Release.
	Prepare(ctx context.Context, pod *corev1.Pod) error
	// Container adds what a container gets of it to what its config is made from, before each start and after Prepare.
	Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, l *podspec.Launch) error
	// Update says that a pod which is wanted has a new object, such as other labels, or a new agent. What it has is brought up
	// to date. It does not wait.
	Update(pod *corev1.Pod)
	// Release gives back all that the pod of a UID has. Nothing of the pod runs. It is called when the pod has terminated,
	// and before its directory and its cgroup are removed: also for an orphaned pod, of which perhaps only the record in
	// its directory is left, and for one that has nothing, which is success. After an error it is called again, and the
	// pod stays known.
	Release(ctx context.Context, uid string) error
}
