// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
)

// Kind is the kind of an object.
type Kind string

// The kinds of objects that volumes are made of.
const (
	ConfigMap      Kind = "ConfigMap"
	Secret         Kind = "Secret"
	TrustBundle    Kind = volume.KindTrustBundle
	PodCertificate Kind = volume.KindPodCertificate // of the pod, by its name; not among those of Wants
)

// Want is an object of the pod's namespace that a volume is made of.
type Want struct {
	Kind     Kind
	Name     string
	Optional bool // the volume can do without
}

// Wants yields the objects that a volume is made of, in the order in which the volume names them, and one that it names twice
// twice.
func Wants(v *corev1.Volume) iter.Seq[Want] {
	return func(yield func(Want) bool) {
		each := func(k Kind, name string, optional *bool) bool {
			return yield(Want{k, name, optional != nil && *optional})
		}
		switch {
		case v.ConfigMap != nil:
			each(ConfigMap, v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			each(Secret, v.Secret.SecretName, v.Secret.Optional)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil && !each(ConfigMap, s.ConfigMap.Name, s.ConfigMap.Optional) ||
					s.Secret != nil && !each(Secret, s.Secret.Name, s.Secret.Optional) {
					return
				}
			}
		}
	}
}

// ShowsCluster reports whether a cluster trust bundle of that name, or a certificate of the pod of that name, is in the files of a
// volume of a pod. An empty kind and an empty name stand for any.
func ShowsCluster(pod *corev1.Pod, v *corev1.Volume, kind Kind, name string) bool {
	if v.Projected == nil {
		return false
	}
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		switch {
		case s.ClusterTrustBundle != nil && (kind == "" || kind == TrustBundle):
			if named := s.ClusterTrustBundle.Name; name == "" || named == nil || *named == name { // of a signer it may be any
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

// ShowsMetadata reports whether the labels and annotations of its pod are in the files of a volume.
func ShowsMetadata(v *corev1.Volume) bool {
	switch {
	case v.DownwardAPI != nil:
		return true
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				return true
			}
		}
	}
	return false
}
