// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
)

// Kind is the kind of an API object that a volume shows.
type Kind string

// Kinds of objects that volumes show.
const (
	ConfigMap      Kind = "ConfigMap"
	Secret         Kind = "Secret"
	TrustBundle    Kind = volume.KindTrustBundle
	PodCertificate Kind = volume.KindPodCertificate // named after its pod; References does not yield it
)

// Reference is a reference of a volume to an object in the namespace of the pod.
type Reference struct {
	Kind     Kind
	Name     string
	Optional bool // the object need not exist
}

// References yields the config maps and secrets that vol refers to, in the order of the spec. An object with several
// references is yielded several times.
func References(vol *corev1.Volume) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		each := func(k Kind, name string, optional *bool) bool {
			return yield(Reference{k, name, optional != nil && *optional})
		}
		switch {
		case vol.ConfigMap != nil:
			each(ConfigMap, vol.ConfigMap.Name, vol.ConfigMap.Optional)
		case vol.Secret != nil:
			each(Secret, vol.Secret.SecretName, vol.Secret.Optional)
		case vol.Projected != nil:
			for _, s := range vol.Projected.Sources {
				if s.ConfigMap != nil && !each(ConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional) ||
					s.Secret != nil && !each(Secret, s.Secret.Name, s.Secret.Optional) {
					return
				}
			}
		}
	}
}

// ShowsClusterObject reports whether a volume of pod contains data of a cluster trust bundle or pod certificate with this
// kind and name. The certificate has the name of the pod. An empty kind or name matches all.
func ShowsClusterObject(pod *corev1.Pod, vol *corev1.Volume, kind Kind, name string) bool {
	if vol.Projected == nil {
		return false
	}
	for i := range vol.Projected.Sources {
		s := &vol.Projected.Sources[i]
		switch {
		case s.ClusterTrustBundle != nil && (kind == "" || kind == TrustBundle):
			if named := s.ClusterTrustBundle.Name; name == "" || named == nil || *named == name { // a source with a signer may show any bundle
				return true
			}
		case s.PodCertificate != nil && (kind == "" || kind == PodCertificate):
			if name == "" || name == pod.Name {
				return true
			}
		}
	}
	return false
}

// ShowsMetadata reports whether vol has a downwardAPI source, so that its files contain labels, annotations or other fields
// of the pod.
func ShowsMetadata(vol *corev1.Volume) bool {
	switch {
	case vol.DownwardAPI != nil:
		return true
	case vol.Projected != nil:
		for _, s := range vol.Projected.Sources {
			if s.DownwardAPI != nil {
				return true
			}
		}
	}
	return false
}
