// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiobjects

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
)

// referenced are the keys of the config maps and secrets that pods refer to, and the namespaces whose services they have variables of.
type referenced struct {
	configMaps, secrets, namespaces map[string]bool
}

// referencesOf collects what pods refer to in their specs. Secrets of a persistent volume are not among them.
func referencesOf(pods []*corev1.Pod) referenced {
	all := referenced{configMaps: map[string]bool{}, secrets: map[string]bool{}, namespaces: map[string]bool{corev1.NamespaceDefault: true}}
	for _, pod := range pods {
		all.namespaces[pod.Namespace] = true
		one := podReferenced{all, pod.Namespace}
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
}

func (r podReferenced) configMap(name string) { r.configMaps[kubeapi.Key(r.namespace, name)] = true }

func (r podReferenced) secret(name string) { r.secrets[kubeapi.Key(r.namespace, name)] = true }

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
		r.configMap(v.ConfigMap.Name)
	case v.Secret != nil:
		r.secret(v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		r.secret(v.CSI.NodePublishSecretRef.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				r.configMap(s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.secret(s.Secret.Name)
			}
		}
	}
}
