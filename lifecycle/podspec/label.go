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

// Annotations of containers, as the kubelet writes them (pkg/kubelet/kuberuntime/labels.go). They let an agent that
// no longer has the pod stop and report its containers.
const (
	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	annotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPorts                    = "io.kubernetes.container.ports"          // JSON
	AnnotationPreStopHandler           = "io.kubernetes.container.preStopHandler" // JSON
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
)

// Hash returns the hash by which a running container is compared with what its pod asks for now. Only name and image
// count: a change of anything else leaves a running container alone. The value equals the kubelet's.
func Hash(c *corev1.Container) string { return strconv.FormatUint(uint64(hashContainer(c)), 16) }

// HasHash reports whether hash is that of the container. It allocates nothing.
func HasHash(c *corev1.Container, hash string) bool {
	var buf [8]byte
	return string(strconv.AppendUint(buf[:0], uint64(hashContainer(c)), 16)) == hash
}

// sum is the FNV-1a sum of the name and the image in JSON; the kubelet hashes a dump of the bytes, not the bytes.
func hashContainer(c *corev1.Container) uint32 {
	d := hashDump{sum: fnvOffset}
	d.addText("([]uint8)[")
	d.addJSON(`{"image":"`, c.Image)
	d.addJSON(`","name":"`, c.Name)
	d.addJSON(`"}`, "")
	d.addText("]")
	return d.sum
}

// The constants of FNV-1a with 32 bits.
const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

// dump sums up a list of numbers as it is printed.
type hashDump struct {
	sum   uint32
	begun bool
}

func (d *hashDump) addText(s string) {
	for i := range len(s) {
		d.sum = (d.sum ^ uint32(s[i])) * fnvPrime
	}
}

// json adds bytes of JSON: some as they are, and a string between quotes.
func (d *hashDump) addJSON(plain, quoted string) {
	d.addBytes(plain)
	for i := range len(quoted) {
		if b := quoted[i]; b < ' ' || b > '~' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			text, _ := json.Marshal(quoted) // a string always can be
			quoted = string(text[1 : len(text)-1])
			break
		}
	}
	d.addBytes(quoted)
}

// bytes adds the decimal numbers of bytes, with spaces between. Each look at a running container comes by here.
func (d *hashDump) addBytes(s string) {
	sum := d.sum
	for i := range len(s) {
		if d.begun {
			sum = (sum ^ ' ') * fnvPrime
		}
		d.begun = true
		b := uint32(s[i])
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

// LogDirectory returns the directory of a pod's logs below the root.
func LogDirectory(root string, id cri.PodIdentity) string {
	return filepath.Join(root, id.Namespace+"_"+id.Name+"_"+id.UID)
}

// LogPath returns the path of a container's log below the log directory of its pod.
func LogPath(container string, attempt uint32) string {
	return filepath.Join(container, strconv.FormatUint(uint64(attempt), 10)+".log")
}

// logDirectory returns the directory of a pod's logs, or nothing where none are kept.
func (o Options) logDirectory(pod *corev1.Pod) string {
	if o.LogRoot == "" {
		return ""
	}
	return LogDirectory(o.LogRoot, podIdentity(pod))
}

// logPath returns the path of a container's log below the directory of the pod's logs, or nothing where none are kept.
func (o Options) logPath(container string, attempt uint32) string {
	if o.LogRoot == "" {
		return ""
	}
	return LogPath(container, attempt)
}

func podIdentity(pod *corev1.Pod) cri.PodIdentity {
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
	a[annotationTerminationMessagePath] = c.TerminationMessagePath
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
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		hook, _ := json.Marshal(c.Lifecycle.PreStop) // so are the fields of a hook
		a[AnnotationPreStopHandler] = string(hook)
	}
	return a
}
