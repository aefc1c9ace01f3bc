// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "github.com/seed81659283/nodeagent/lifecycle/podstatus"

// ImagesInUse returns the images, possibly twice, of all containers and image volumes of pods that have not terminated,
// which image garbage collection must keep. Pods that have not started and temporarily evicted pods are included.
func (r *Reconciler) ImagesInUse() (names []string) {
	pods, _ := r.Active()
	for _, p := range r.Pods() {
		if p.Spec != nil && !p.Deleted && (p.Status == nil || !podstatus.IsTerminal(p.Status.Phase)) {
			pods = append(pods, p.Spec)
		}
	}
	for _, pod := range pods {
		for i := range pod.Spec.InitContainers {
			names = append(names, pod.Spec.InitContainers[i].Image)
		}
		for i := range pod.Spec.Containers {
			names = append(names, pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.EphemeralContainers {
			names = append(names, pod.Spec.EphemeralContainers[i].Image)
		}
		for i := range pod.Spec.Volumes {
			if image := pod.Spec.Volumes[i].Image; image != nil {
				names = append(names, image.Reference)
			}
		}
	}
	return names
}
