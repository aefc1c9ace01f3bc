// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// podShare is how many config maps, and how many secrets, that the volumes of one pod show are watched. The objects beyond it are read by
// plain requests, so that one pod cannot use up the watches of the node.
const maxPodWatches = 32

// referenced are the keys of the config maps and secrets that pods refer to, and the namespaces whose services they have variables of.
type referenceSet struct {
	configMaps, secrets map[string]reference
	namespaces          map[string]bool
}

// reference is how pods refer to an object.
type reference struct {
	watchable bool   // it is within the podShare of a pod
	pod       string // the key of the first pod, whose budget pays for plain requests
}

// referencesOf collects what pods refer to in their specs. Secrets of a persistent volume are not among them.
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

// podReferenced adds those of one pod.
type podReferences struct {
	referenceSet
	namespace    string
	pod          string         // its key
	volumeCounts map[string]int // by kind, objects of volumes
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

// add adds a reference to an object, with those of pods before.
func (r podReferences) addReference(objects map[string]reference, name string, watchable bool) {
	key := kubeapi.Key(r.namespace, name)
	reference, known := objects[key]
	if !known {
		reference.pod = r.pod
	}
	reference.watchable = reference.watchable || watchable
	objects[key] = reference
}

func (r podReferences) addContainer(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.addConfigMap(from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.addSecret(from.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
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

func (r podReferences) addVolume(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.addVolumeConfigMap(v.ConfigMap.Name)
	case v.Secret != nil:
		r.addVolumeSecret(v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		r.addVolumeSecret(v.CSI.NodePublishSecretRef.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				r.addVolumeConfigMap(s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.addVolumeSecret(s.Secret.Name)
			}
		}
	}
}
