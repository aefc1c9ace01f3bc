// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "strings"

// QOS is the QoS class of a pod, spelled as in corev1.PodQOSClass. An unknown value counts as [BestEffort].
type QOS string

// The QoS classes of Kubernetes.
const (
	Guaranteed QOS = "Guaranteed"
	Burstable  QOS = "Burstable"
	BestEffort QOS = "BestEffort"
)

// Directory names of the kubelet's layout, pkg/kubelet/cm/{qos,pod}_container_manager_linux.go.
const (
	kubepods      = "kubepods"   // parent of all pods; the Guaranteed pods are directly below
	burstableDir  = "burstable"  // in kubepods
	bestEffortDir = "besteffort" // in kubepods
	podPrefix     = "pod"        // followed by the UID
)

// QOSPath returns the parent cgroup of all pods of a QoS class. It is root/kubepods for Guaranteed, root/kubepods/burstable
// for Burstable, and root/kubepods/besteffort for BestEffort.
func QOSPath(root Path, class QOS) Path {
	switch class {
	case Guaranteed:
		return root.Join(kubepods)
	case Burstable:
		return root.Join(kubepods, burstableDir)
	default:
		return root.Join(kubepods, bestEffortDir)
	}
}

// PodPath returns the cgroup of the pod with this UID. Its name is "pod" and the UID, and its parent is [QOSPath]. If the
// UID is no valid component, [Path.Validate] rejects the path.
func PodPath(root Path, class QOS, uid string) Path {
	return QOSPath(root, class).Join(podPrefix + uid)
}

// PodUID returns the UID of the pod whose cgroup is p. ok is false if p does not have the form of [PodPath]. As in the
// kubelet, it is also false if the UID contains "pod": the cgroup may belong to another program.
//
// Differs from the kubelet: its IsPodCgroup checks only the depth of p, so that it accepts "system/pod1". Here an empty UID
// is not accepted.
func PodUID(root, p Path) (uid string, ok bool) {
	uid, ok = strings.CutPrefix(p.Base(), podPrefix)
	if !ok || uid == "" || strings.Contains(uid, podPrefix) {
		return "", false
	}
	class := string(p.Parent())
	if root != "" {
		if class, ok = strings.CutPrefix(class, string(root)+"/"); !ok {
			return "", false
		}
	}
	switch class {
	case kubepods, kubepods + "/" + burstableDir, kubepods + "/" + bestEffortDir:
		return uid, true
	}
	return "", false
}
