// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Annotations of containers, as the kubelet writes them (pkg/kubelet/kuberuntime/labels.go). They let an agent that
// no longer has the pod stop and report its containers.
const (
	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPorts                    = "io.kubernetes.container.ports" // JSON
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
)

// Hash returns the hash that tells whether a container still runs what its pod asks for. Only its name and image
// count: a change of anything else leaves a running container alone. The value equals the kubelet's.
func Hash(c *corev1.Container) string {
	// Marshalling two strings cannot fail.
	fields, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	// The kubelet hashes a dump of the bytes, not the bytes.
	fmt.Fprintf(h, "([]uint8)%v", fields)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// LogDirectory returns the directory of a pod's logs below the root.
func LogDirectory(root string, id cri.PodIdentity) string {
	return filepath.Join(root, id.Namespace+"_"+id.Name+"_"+id.UID)
}

// LogPath returns the path of a container's log below the log directory of its pod.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

func identity(pod *corev1.Pod) cri.PodIdentity {
	return cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace}
}

func sandboxLabels(pod *corev1.Pod) map[string]string {
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = make(map[string]string, 3)
	}
	labels[cri.LabelPodName] = pod.Name
	labels[cri.LabelPodNamespace] = pod.Namespace
	labels[cri.LabelPodUID] = string(pod.UID)
	return labels
}

func containerLabels(pod *corev1.Pod, c *corev1.Container) map[string]string {
	return map[string]string{
		cri.LabelPodName:       pod.Name,
		cri.LabelPodNamespace:  pod.Namespace,
		cri.LabelPodUID:        string(pod.UID),
		cri.LabelContainerName: c.Name,
	}
}

func containerAnnotations(pod *corev1.Pod, c *corev1.Container, l Launch) map[string]string {
	a := maps.Clone(l.Annotations)
	if a == nil {
		a = make(map[string]string, 7)
	}
	a[AnnotationHash] = Hash(c)
	a[AnnotationRestartCount] = strconv.FormatUint(uint64(l.Attempt), 10)
	a[AnnotationTerminationMessagePath] = c.TerminationMessagePath
	a[AnnotationTerminationMessagePolicy] = string(c.TerminationMessagePolicy)
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		a[AnnotationDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[AnnotationTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if len(c.Ports) > 0 {
		// Ports are plain strings and numbers, so marshalling cannot fail.
		ports, _ := json.Marshal(c.Ports)
		a[AnnotationPorts] = string(ports)
	}
	return a
}
