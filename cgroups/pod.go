// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "strings"

// QOS is the quality of service that a pod gets, written as in corev1.PodQOSClass. Any other value is taken for
// [BestEffort], the class that promises nothing.
type QOS string

// The classes of the kubelet.
const (
	Guaranteed QOS = "Guaranteed"
	Burstable  QOS = "Burstable"
	BestEffort QOS = "BestEffort"
)

// Names of the kubelet's layout, pkg/kubelet/cm/{qos,pod}_container_manager_linux.go.
const (
	kubepods      = "kubepods"   // all pods, and the Guaranteed ones directly
	burstableDir  = "burstable"  // in kubepods
	bestEffortDir = "besteffort" // in kubepods
	podPrefix     = "pod"        // before the UID
)

// QOSPath returns where the pods of a class lie: root/kubepods for Guaranteed ones, and burstable or besteffort
// below.
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

// PodPath returns the cgroup of a pod: "pod" and its UID in the [QOSPath] of its class. A UID that is no component
// makes a path that [Path.Validate] refuses.
func PodPath(root Path, class QOS, uid string) Path {
	return QOSPath(root, class).Join(podPrefix + uid)
}

// PodUID returns the UID of the pod whose cgroup p is, and whether it is one: p must lie exactly where [PodPath] puts
// pods. As in the kubelet, a UID that holds "pod" once more is not taken for one, so that a cgroup which only looks
// like that of a pod is left alone.
//
// Differs from the kubelet: its IsPodCgroup looks at the depth of p and not at its parents, and so takes
// "system/pod1" for a pod; an empty UID is no pod here.
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
