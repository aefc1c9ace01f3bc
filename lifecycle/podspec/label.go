// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Annotations of containers, as in the kubelet (pkg/kubelet/kuberuntime/labels.go). With them, an agent can stop and report the
// containers of a pod whose spec is lost.
const (
	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPorts                    = "io.kubernetes.container.ports"          // JSON
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler" // JSON
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
)

// Hash returns the kubelet's hash of the container's name and image. A running container whose hash has changed must be
// replaced.
func Hash(container *corev1.Container) string {
	return strconv.FormatUint(uint64(hashContainer(container)), 16)
}

// HasHash reports whether hash equals the result of [Hash] for the container. It does not allocate.
func HasHash(container *corev1.Container, hash string) bool {
	var buf [8]byte
	return string(strconv.AppendUint(buf[:0], uint64(hashContainer(container)), 16)) == hash
}

// hashContainer returns the FNV-1a hash of the container's name and image.
func hashContainer(container *corev1.Container) uint32 {
	// As in the kubelet, of the printed bytes of their JSON, such as "([]uint8)[123 34]".
	d := hashDump{sum: fnvOffset}
	d.addText("([]uint8)[")
	d.addJSON(`{"image":"`, container.Image)
	d.addJSON(`","name":"`, container.Name)
	d.addJSON(`"}`, "")
	d.addText("]")
	return d.sum
}

// The 32-bit constants of FNV-1a.
const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

// hashDump hashes a list of byte values in the format of the fmt verb %v.
type hashDump struct {
	sum   uint32
	begun bool // a byte was added, so the next one is preceded by a space
}

// addText adds to the hash the bytes of value.
func (d *hashDump) addText(value string) {
	for i := range len(value) {
		d.sum = (d.sum ^ uint32(value[i])) * fnvPrime
	}
}

// addJSON adds plain JSON text, and then the content of a string, escaped as in JSON, to the hash.
func (d *hashDump) addJSON(plain, quoted string) {
	d.addBytes(plain)
	for i := range len(quoted) {
		if b := quoted[i]; b < ' ' || b > '~' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			text, _ := json.Marshal(quoted) // a string can always be encoded
			quoted = string(text[1 : len(text)-1])
			break
		}
	}
	d.addBytes(quoted)
}

// addBytes adds the bytes of a string to the hash, as decimal numbers with spaces between them.
func (d *hashDump) addBytes(value string) {
	// Optimized: this runs for each observation of a running container.
	sum := d.sum
	for i := range len(value) {
		if d.begun {
			sum = (sum ^ ' ') * fnvPrime
		}
		d.begun = true
		b := uint32(value[i])
		if b >= 100 {
			sum = (sum ^ ('0' + b/100)) * fnvPrime
		}
		if b >= 10 {
			sum = (sum ^ ('0' + b/10%10)) * fnvPrime
		}
		sum = (sum ^ ('0' + b%10)) * fnvPrime
	}
	d.sum = sum
}

// LogDirectory returns the log directory of a pod, ROOT/NAMESPACE_NAME_UID.
func LogDirectory(root string, id cri.PodIdentity) string {
	return filepath.Join(root, id.Namespace+"_"+id.Name+"_"+id.UID)
}

// LogPath returns the path of a container's log file, CONTAINER/ATTEMPT.log. The path is relative to the log directory of
// the pod.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// logDirectory returns the log directory of the pod. It returns "" if Options.LogRoot is empty, because no logs are written
// then.
func (o Options) logDirectory(pod *corev1.Pod) string {
	if o.LogRoot == "" {
		return ""
	}
	return LogDirectory(o.LogRoot, podIdentity(pod))
}

// logPath returns the path of a container's log, relative to the log directory of the pod. It returns "" if Options.LogRoot
// is empty.
func (o Options) logPath(container string, attempt uint32) string {
	if o.LogRoot == "" {
		return ""
	}
	return LogPath(container, attempt)
}

// podIdentity returns the UID, name and namespace of the pod.
func podIdentity(pod *corev1.Pod) cri.PodIdentity {
	return cri.PodIdentity{UID: string(pod.UID), Name: pod.Name, Namespace: pod.Namespace}
}

// sandboxLabels returns the labels of the pod, and the CRI labels with its name, namespace and UID.
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

// containerLabels returns the CRI labels of a container.
func containerLabels(pod *corev1.Pod, container *corev1.Container) map[string]string {
	return map[string]string{
		cri.LabelPodName:       pod.Name,
		cri.LabelPodNamespace:  pod.Namespace,
		cri.LabelPodUID:        string(pod.UID),
		cri.LabelContainerName: container.Name,
	}
}

// containerAnnotations returns the CRI annotations of a container: launch.Annotations, and the annotations that the kubelet
// sets, such as AnnotationHash.
func containerAnnotations(pod *corev1.Pod, container *corev1.Container, launch Launch) map[string]string {
	a := maps.Clone(launch.Annotations)
	if a == nil {
		a = make(map[string]string, 7)
	}
	a[AnnotationHash] = Hash(container)
	a[AnnotationRestartCount] = strconv.FormatUint(uint64(launch.Attempt), 10)
	a[AnnotationTerminationMessagePath] = container.TerminationMessagePath
	a[AnnotationTerminationMessagePolicy] = string(container.TerminationMessagePolicy)
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		a[AnnotationDeletionGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[AnnotationTerminationGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if len(container.Ports) > 0 {
		// Ports are plain strings and numbers, so marshalling cannot fail.
		ports, _ := json.Marshal(container.Ports)
		a[AnnotationPorts] = string(ports)
	}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		hook, _ := json.Marshal(container.Lifecycle.PreStop) // the fields of a hook cannot fail either
		a[AnnotationPreStopHandler] = string(hook)
	}
	return a
}
