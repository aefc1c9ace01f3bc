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
const podShare = 32

// referenced are the keys of the config maps and secrets that pods refer to, and the namespaces whose services they have variables of.
type referenced struct {
	configMaps, secrets map[string]reference
	namespaces          map[string]bool
}

// reference is how pods refer to an object.
type reference struct {
	share bool   // it is within the podShare of a pod
	pod   string // the key of the first pod, whose budget pays for plain requests
}

// referencesOf collects what pods refer to in their specs. Secrets of a persistent volume are not among them.
func referencesOf(pods []*corev1.Pod) referenced {
	all := referenced{configMaps: map[string]reference{}, secrets: map[string]reference{}, namespaces: map[string]bool{corev1.NamespaceDefault: true}}
	for _, pod := range pods {
		all.namespaces[pod.Namespace] = true
		one := podReferenced{referenced: all, namespace: pod.Namespace, pod: kubeapi.Key(pod.Namespace, pod.Name), shown: map[string]int{}}
		for _, s := range pod.Spec.ImagePullSecrets {
			one.secret(s.Name)
		}
		for c := range containers.All(&pod.Spec) {
			one.container(c.Container)
		}
		for i := range pod.Spec.Volumes {
			one.volume(&pod.Spec.Volumes[i])
		}
	}
	return all
}

// podReferenced adds those of one pod.
type podReferenced struct {
	referenced
	namespace string
	pod       string         // its key
	shown     map[string]int // by kind, objects of volumes
}

func (r podReferenced) configMap(name string) { r.add(r.configMaps, name, false) }

func (r podReferenced) secret(name string) { r.add(r.secrets, name, false) }

func (r podReferenced) shownConfigMap(name string) {
	r.shown[kindConfigMap]++
	r.add(r.configMaps, name, r.shown[kindConfigMap] <= podShare)
}

func (r podReferenced) shownSecret(name string) {
	r.shown[kindSecret]++
	r.add(r.secrets, name, r.shown[kindSecret] <= podShare)
}

// add adds a reference to an object, with those of pods before.
func (r podReferenced) add(objects map[string]reference, name string, share bool) {
	key := kubeapi.Key(r.namespace, name)
	was, known := objects[key]
	if !known {
		was.pod = r.pod
	}
	was.share = was.share || share
	objects[key] = was
}

func (r podReferenced) container(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.configMap(from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.secret(from.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.configMap(ref.Name)
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			r.secret(ref.Name)
		}
	}
}

func (r podReferenced) volume(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.shownConfigMap(v.ConfigMap.Name)
	case v.Secret != nil:
		r.shownSecret(v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		r.shownSecret(v.CSI.NodePublishSecretRef.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				r.shownConfigMap(s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.shownSecret(s.Secret.Name)
			}
		}
	}
}
