// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/optional"
)

// projected adds the files of one source of a projected volume.
func (b *builder) projected(i int, s *corev1.VolumeProjection) {
	switch {
	case s.ConfigMap != nil:
		b.configMap(s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.Secret != nil:
		b.secret(s.Secret.Name, s.Secret.Items, s.Secret.Optional)
	case s.DownwardAPI != nil:
		b.downwardAPI(s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		token, ok := b.in.Tokens[i]
		if !ok {
			b.fail("source %d: no service account token", i)
			return
		}
		b.private(s.ServiceAccountToken.Path, []byte(token))
	case s.ClusterTrustBundle != nil:
		bundle, ok := b.in.TrustBundles[i]
		if !ok && !optional.IsTrue(s.ClusterTrustBundle.Optional) {
			b.fail("source %d: no cluster trust bundle", i)
			return
		}
		b.private(s.ClusterTrustBundle.Path, bundle)
	case s.PodCertificate != nil:
		b.certificate(i, s.PodCertificate)
	}
}

// certificate adds the files of a pod certificate that are asked for.
func (b *builder) certificate(i int, p *corev1.PodCertificateProjection) {
	c, ok := b.in.Certificates[i]
	if !ok {
		b.fail("source %d: no pod certificate", i)
		return
	}
	if p.CredentialBundlePath != "" {
		b.private(p.CredentialBundlePath, slices.Concat(c.Key, c.Chain))
	}
	if p.KeyPath != "" {
		b.private(p.KeyPath, c.Key)
	}
	if p.CertificateChainPath != "" {
		b.private(p.CertificateChainPath, c.Chain)
	}
}

// private adds a file that only the one user of the pod is to read. With an fsGroup its group can: that makes 0640 of 0600.
func (b *builder) private(at string, data []byte) {
	var mode *int32
	owner := user(&b.pod.Spec)
	if sc := b.pod.Spec.SecurityContext; owner != nil || sc != nil && sc.FSGroup != nil {
		mode = new(int32(0o600))
	}
	b.putOwned(at, data, mode, owner)
}

// user returns the user that all containers of a pod run as, or nil where they run as several or where one takes that of its
// image (pkg/volume/util, FsUserFrom).
func user(spec *corev1.PodSpec) *int64 {
	var one *int64
	for c := range containers.All(spec) {
		u := optional.First(optional.OrZero(c.SecurityContext).RunAsUser, optional.OrZero(spec.SecurityContext).RunAsUser)
		if u == nil || one != nil && *one != *u {
			return nil
		}
		one = u
	}
	return one
}
