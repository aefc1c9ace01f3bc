// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/optional"
)

// userIDs is the minimum number of IDs in the user namespace of a pod (KEP-127).
const userIDs = 1 << 16

// podNamespaces returns the namespace options for the sandbox and the containers of the pod. Source: NamespacesForPod in
// pkg/kubelet/kuberuntime/util.
func podNamespaces(pod *corev1.Pod, opts Options) (cri.NamespaceOptions, error) {
	n := cri.NamespaceOptions{PID: cri.NamespaceContainer}
	switch {
	case pod.Spec.HostPID:
		n.PID = cri.NamespaceNode
	case optional.IsTrue(pod.Spec.ShareProcessNamespace):
		n.PID = cri.NamespacePod
	}
	if pod.Spec.HostNetwork {
		n.Network = cri.NamespaceNode
	}
	if pod.Spec.HostIPC {
		n.IPC = cri.NamespaceNode
	}
	var err error
	n.User, err = userNamespace(pod, opts)
	return n, err
}

// userNamespace returns a new user namespace for the pod if hostUsers is false. Otherwise it returns that of the node.
func userNamespace(pod *corev1.Pod, opts Options) (*cri.UserNamespace, error) {
	if h := pod.Spec.HostUsers; h == nil || *h {
		return &cri.UserNamespace{Mode: cri.NamespaceNode}, nil
	}
	path := field.NewPath("spec", "hostUsers")
	h, err := opts.runtimeHandlerOf(pod)
	switch {
	case err != nil:
		return nil, err
	case opts.UserNamespace == nil:
		return nil, field.Invalid(path, false, "this node has no user namespaces")
	case !h.UserNamespaces:
		return nil, field.Invalid(path, false, fmt.Sprintf("the runtime has no user namespaces with handler %q", h.Name))
	}
	m, err := opts.UserNamespace(pod)
	if err != nil {
		return nil, field.Invalid(path, false, err.Error())
	}
	// The range must not include ID 0 of the node: such a namespace protects nothing.
	if m.ContainerID != 0 || m.HostID < userIDs || m.Length < userIDs {
		return nil, field.Invalid(path, false, fmt.Sprintf("%d IDs from %d of the pod to %d of the host: want at least %d from 0 to %d or more",
			m.Length, m.ContainerID, m.HostID, userIDs, userIDs))
	}
	return &cri.UserNamespace{Mode: cri.NamespacePod, UIDs: []cri.IDMapping{m}, GIDs: []cri.IDMapping{m}}, nil
}

// setTarget lets an ephemeral container share the PID namespace of its target container, if it has one.
func setTarget(pod *corev1.Pod, container *corev1.Container, launch Launch, namespaces *cri.NamespaceOptions) error {
	for i := range pod.Spec.EphemeralContainers {
		e := &pod.Spec.EphemeralContainers[i]
		if e.Name != container.Name || e.TargetContainerName == "" {
			continue
		}
		if launch.TargetID == "" {
			return field.NotFound(field.NewPath("spec", "ephemeralContainers").Index(i).Child("targetContainerName"), e.TargetContainerName)
		}
		if namespaces.PID == cri.NamespaceContainer {
			namespaces.PID, namespaces.TargetID = cri.NamespaceTarget, launch.TargetID
		}
	}
	return nil
}
