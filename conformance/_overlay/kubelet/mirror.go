// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
)

// ConformanceMirrors creates and deletes mirror pods for pods, as the kubelet does. If terminating(fullName) returns true
// for a pod, the pod is terminating, and its mirror pod is left unchanged.
func ConformanceMirrors(
	ctx context.Context, client clientset.Interface, nodes corelisters.NodeLister, node string, pods []*v1.Pod, terminating func(fullName string) bool,
) {
	manager := kubepod.NewBasicPodManager()
	manager.SetPods(pods)
	kl := &Kubelet{
		kubeClient: client, nodeLister: nodes, nodeName: types.NodeName(node),
		mirrorPodClient: kubepod.NewBasicMirrorClient(client, node, nodes),
	}
	// As in the sync of a static pod (allowStaticPodStart in pod_workers.go).
	for static, mirror := range manager.GetStaticPodToMirrorPodMap() {
		if !terminating(kubecontainer.GetPodFullName(static)) {
			kl.tryReconcileMirrorPods(ctx, static, mirror)
		}
	}
	// As in the housekeeping: mirror pods without a static pod.
	_, _, orphans := manager.GetPodsAndMirrorPods()
	for _, name := range orphans {
		if !terminating(name) {
			_, _ = kl.mirrorPodClient.DeleteMirrorPod(ctx, name, nil)
		}
	}
}
