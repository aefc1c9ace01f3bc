// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/optional"
)

// addSource adds the files of source i of a projected volume.
func (b *builder) addSource(i int, s *corev1.VolumeProjection) {
	switch {
	case s.ConfigMap != nil:
		b.addConfigMap(s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		b.addSecret(s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		b.addDownwardAPI(s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		token, ok := b.in.Tokens[i]
		if !ok {
			b.addError("source %d: no service account token", i)
			return
		}
		b.addCredential(s.ServiceAccountToken.Path, []byte(token))
	case s.ClusterTrustBundle != nil:
		bundle, ok := b.in.TrustBundles[i]
		if !ok && !optional.IsTrue(s.ClusterTrustBundle.Optional) {
			b.addError("source %d: no cluster trust bundle", i)
			return
		}
		b.addCredential(s.ClusterTrustBundle.Path, bundle)
	case s.PodCertificate != nil:
		b.addCertificate(i, s.PodCertificate)
	}
}

// addCertificate adds the files of the podCertificate source with index i: the key, the certificate chain, or both in one.
func (b *builder) addCertificate(i int, projection *corev1.PodCertificateProjection) {
	c, ok := b.in.Certificates[i]
	if !ok {
		b.addError("source %d: no pod certificate", i)
		return
	}
	if projection.CredentialBundlePath != "" {
		b.addCredential(projection.CredentialBundlePath, slices.Concat(c.Key, c.Chain))
	}
	if projection.KeyPath != "" {
		b.addCredential(projection.KeyPath, c.Key)
	}
	if projection.CertificateChainPath != "" {
		b.addCredential(projection.CertificateChainPath, c.Chain)
	}
}

// addCredential adds a file with a credential, such as a service account token, to the volume. If all containers of the pod run
// as one user, the file belongs to this user.
func (b *builder) addCredential(path string, data []byte) {
	var mode *int32
	owner := commonUser(&b.pod.Spec)
	if sc := b.pod.Spec.SecurityContext; owner != nil || sc != nil && sc.FSGroup != nil {
		// Package fsgroup later changes the mode to 0640 for a pod with an fsGroup.
		mode = new(int32(0o600))
	}
	b.addOwnedFile(path, data, mode, owner)
}

// commonUser returns the user ID that all containers in spec run as, or nil. Source: FsUserFrom in pkg/volume/util.
func commonUser(spec *corev1.PodSpec) *int64 {
	var one *int64
	for c := range containers.All(spec) {
		u := optional.First(optional.OrZero(c.SecurityContext).RunAsUser, optional.OrZero(spec.SecurityContext).RunAsUser)
		if u == nil || one != nil && *one != *u {
			// Without an ID, the image determines the user.
			return nil
		}
		one = u
	}
	return one
}
