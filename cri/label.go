// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

// Labels that the kubelet puts on sandboxes and containers, and that tools such as crictl and the metrics
// pipeline look for. A runtime that speaks the CRI knows whose container it holds only by them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name" // on containers only
)
