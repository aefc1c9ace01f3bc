// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// maxPodWatches is how many config maps, and how many secrets, of the volumes of one pod are watched. Further objects are read by
// GET requests, so that one pod cannot use up the watches of the node.
const maxPodWatches = 32

// referenceSet holds the config maps and secrets that pods refer to, by key, and the namespaces of the pods, whose services
// become environment variables.
type referenceSet struct {
	configMaps, secrets map[string]reference
	namespaces          map[string]bool
}

// reference describes how pods refer to one config map or secret.
type reference struct {
	watchable bool   // among the first maxPodWatches objects of the volumes of a pod
	pod       string // key of the first pod that refers to it; GET requests count against its budget
}

// collectReferences returns the namespaces of the pods, and the config maps and secrets to which their specs refer.
func collectReferences(pods []*corev1.Pod) referenceSet {
	refs := referenceSet{configMaps: map[string]reference{}, secrets: map[string]reference{}, namespaces: map[string]bool{corev1.NamespaceDefault: true}}
	for _, pod := range pods {
		refs.namespaces[pod.Namespace] = true
		podRefs := podReferences{referenceSet: refs, namespace: pod.Namespace, pod: kubeapi.Key(pod.Namespace, pod.Name), volumeCounts: map[string]int{}}
		for _, s := range pod.Spec.ImagePullSecrets {
			podRefs.addSecret(s.Name)
		}
		for c := range containers.All(&pod.Spec) {
			podRefs.addContainer(c.Container)
		}
		for i := range pod.Spec.Volumes {
			podRefs.addVolume(&pod.Spec.Volumes[i])
		}
	}
	return refs
}

// podReferences adds the references of one pod to a referenceSet.
type podReferences struct {
	referenceSet
	namespace    string
	pod          string         // key of the pod
	volumeCounts map[string]int // config maps and secrets of volumes, by kind
}

func (r podReferences) addConfigMap(name string) { r.addReference(r.configMaps, name, false) }

func (r podReferences) addSecret(name string) { r.addReference(r.secrets, name, false) }

func (r podReferences) addVolumeConfigMap(name string) {
	r.volumeCounts[kindConfigMap]++
	r.addReference(r.configMaps, name, r.volumeCounts[kindConfigMap] <= maxPodWatches)
}

func (r podReferences) addVolumeSecret(name string) {
	r.volumeCounts[kindSecret]++
	r.addReference(r.secrets, name, r.volumeCounts[kindSecret] <= maxPodWatches)
}

// addReference records that the pod refers to an object, and whether this reference permits a watch of the object.
func (r podReferences) addReference(objects map[string]reference, name string, watchable bool) {
	key := kubeapi.Key(r.namespace, name)
	reference, known := objects[key]
	if !known {
		reference.pod = r.pod
	}
	reference.watchable = reference.watchable || watchable
	objects[key] = reference
}

func (r podReferences) addContainer(container *corev1.Container) {
	for _, from := range container.EnvFrom {
		if from.ConfigMapRef != nil {
			r.addConfigMap(from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.addSecret(from.SecretRef.Name)
		}
	}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.addConfigMap(ref.Name)
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			r.addSecret(ref.Name)
		}
	}
}

func (r podReferences) addVolume(volume *corev1.Volume) {
	switch {
	case volume.ConfigMap != nil:
		r.addVolumeConfigMap(volume.ConfigMap.Name)
	case volume.Secret != nil:
		r.addVolumeSecret(volume.Secret.SecretName)
	case volume.CSI != nil && volume.CSI.NodePublishSecretRef != nil:
		r.addVolumeSecret(volume.CSI.NodePublishSecretRef.Name)
	case volume.Projected != nil:
		for _, s := range volume.Projected.Sources {
			if s.ConfigMap != nil {
				r.addVolumeConfigMap(s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.addVolumeSecret(s.Secret.Name)
			}
		}
	}
}
