// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
)

// The kubelet reads the allocations and the actual resources of pods that we write, in both files, and they are those that it records itself. We read the
// files that it writes, and ours have the same bytes.
func TestKubeletState(t *testing.T) {
	root := t.TempDir()
	for i := range max(1, flags.Inputs()/200) {
		c := conformance.NewChoices(conformance.RandomBytes(flags.Seed(), uint64(i)))
		dir := filepath.Join(root, fmt.Sprint(i))
		pods := []*corev1.Pod{randomSizedPod(c, "uid-0"), randomSizedPod(c, "uid-1")}
		for _, pod := range pods {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "pods", string(pod.UID)), 0o700))
		}
		store := kubeletstate.Open(dir, filepath.Join(dir, "pods"), slog.New(slog.DiscardHandler))
		for _, pod := range pods {
			store.Set(pod, nil)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		store.Run(ended)
		for _, name := range []string{kubeletstate.AllocatedName, kubeletstate.ActuatedName} {
			theirs, err := state.NewStateCheckpoint(klog.Background(), dir, name)
			require.NoError(t, err)
			require.Len(t, theirs.GetPodResourceInfoMap(), len(pods))
			for _, pod := range pods {
				requireSameInfo(t, allocation.ResourceInfoForPod(pod), theirs, pod)
			}
		}

		ours, err := os.ReadFile(filepath.Join(dir, kubeletstate.AllocatedName))
		require.NoError(t, err)
		again := t.TempDir()
		theirs, err := state.NewStateCheckpoint(klog.Background(), again, kubeletstate.AllocatedName)
		require.NoError(t, err)
		for _, pod := range pods {
			require.NoError(t, theirs.SetPodResourceInfo(klog.Background(), pod.UID, allocation.ResourceInfoForPod(pod)))
		}
		written, err := os.ReadFile(filepath.Join(again, kubeletstate.AllocatedName))
		require.NoError(t, err)
		require.Equal(t, string(written), string(ours))
		read := kubeletstate.Open(again, filepath.Join(dir, "pods"), slog.New(slog.DiscardHandler))
		for _, pod := range pods {
			require.Same(t, pod, read.Allocation(string(pod.UID)).Apply(pod), "the allocated resources are those of the spec")
		}
	}
}

// requireSameInfo compares the CPU and memory of each container. The kubelet's actual limits of a container may be those of the pod.
func requireSameInfo(t *testing.T, want state.PodResourceInfo, got state.State, pod *corev1.Pod) {
	t.Helper()
	info, ok := got.GetPodResourceInfo(pod.UID)
	require.True(t, ok)
	require.Len(t, info.ContainerResources, len(want.ContainerResources))
	require.Equal(t, want.PodLevelResources == nil, info.PodLevelResources == nil)
	for name, r := range want.ContainerResources {
		has := info.ContainerResources[name]
		for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			require.Zero(t, r.Requests.Name(resource, "").Cmp(*has.Requests.Name(resource, "")), "%v %v", r, has)
			limit := r.Limits.Name(resource, "")
			if limit.IsZero() && pod.Spec.Resources != nil && !has.Limits.Name(resource, "").IsZero() {
				limit = pod.Spec.Resources.Limits.Name(resource, "")
			}
			require.Zero(t, limit.Cmp(*has.Limits.Name(resource, "")), "%v %v", r, has)
		}
	}
}

// randomSizedPod returns a pod with random resources.
func randomSizedPod(c *conformance.Choices, uid string) *corev1.Pod {
	list := func() (list corev1.ResourceList) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
			if c.OneIn(2) {
				continue
			}
			if list == nil {
				list = corev1.ResourceList{}
			}
			list[name] = []resource.Quantity{resource.MustParse("100m"), resource.MustParse("1"), resource.MustParse("1Gi"), resource.MustParse("1500M"), resource.MustParse("0")}[c.Int(5)]
		}
		return list
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "default"}}
	for i := range 1 + c.Int(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}})
	}
	if c.OneIn(2) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}}}
	}
	if c.OneIn(3) {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list(), Limits: list()}
	}
	return pod
}
