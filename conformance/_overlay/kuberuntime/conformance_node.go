// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

// ConformanceVersion parses the version that a container runtime reports. It calls newRuntimeVersion.
func ConformanceVersion(version string) (kubecontainer.Version, error) {
	return newRuntimeVersion(version)
}
