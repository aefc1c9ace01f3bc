// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kuberuntime

import kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

// ConformanceVersion calls newRuntimeVersion, which parses the version that a container runtime reports.
func ConformanceVersion(version string) (kubecontainer.Version, error) {
	return newRuntimeVersion(version)
}
