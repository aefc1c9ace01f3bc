// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// readKeyPair returns the key pair in the credential bundle of a volume, after verifying it with the trust bundle beside it.
func readKeyPair(t *testing.T, n *node, m volume.Mount) string {
	t.Helper()
	bundle := []byte(n.readFile(m, "bundle"))
	p, err := tls.X509KeyPair(bundle, bundle)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(n.readFile(m, "ca"))))
	_, err = p.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	return string(bundle)
}

// The volume is updated as soon as a new certificate is issued.
func TestPodCertificateRenewedWithTrustBundle(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	signer, bundles := &volumetest.Signer{Lifetime: time.Hour}, &volumetest.TrustBundles{}
	ca, err := signer.TrustBundle("example.com:x:ca", "example.com/x")
	require.NoError(t, err)
	bundles.Put(ca)
	keeper := intree.NewCertificateKeeper(signer, intree.CertificateOptions{Rand: func() float64 { return 0 }})
	n.options.Certificates, n.options.TrustBundles = keeper, bundles
	v, err := volume.New(volume.Options{
		Root: n.root, Plugins: intree.Plugins(n.options), Watcher: volume.JoinWatchers(keeper, bundles),
		Hooks: volume.Hooks{Event: func(_ *corev1.Pod, _, reason, message string) { t.Log(reason, message) }},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { assert.NoError(t, v.Run(ctx)) })
	wg.Go(func() { assert.NoError(t, keeper.Run(ctx)) })

	pod := podtest.Pod(t, `{securityContext: {runAsUser: 77, fsGroup: 1234}, volumes: [{name: v, projected: {sources: [
		{podCertificate: {signerName: example.com/x, keyType: ECDSAP256, credentialBundlePath: bundle}},
		{clusterTrustBundle: {signerName: example.com/x, labelSelector: {}, path: ca}}]}}]}`,
		"{volumeMounts: [{name: v, mountPath: /v}]}")
	require.NoError(t, v.Prepare(ctx, pod))
	m := volume.Mount{HostPath: n.newVolume(volume.Projected, pod).Dir}
	first := readKeyPair(t, n, m)
	st := stat(t, m.HostPath+"/..data/bundle")
	assert.EqualValues(t, 0o640, st.Mode&0o777)
	assert.EqualValues(t, 77, st.Uid)
	assert.EqualValues(t, 1234, st.Gid)

	other, err := (&volumetest.Signer{}).TrustBundle("example.com:x:other", "example.com/x")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		bundles.Put(other) // repeated, because the watch may not have started
		return len(n.readFile(m, "ca")) > len(ca.PEM)
	}, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, first, readKeyPair(t, n, m), "a new trust bundle does not renew the certificate")

	require.NoError(t, v.Release(ctx, string(pod.UID)))
	assert.Empty(t, intree.CertificateCounts(keeper), "the key is removed with the volume")
}

func TestShowsClusterObjects(t *testing.T) {
	shows := func(spec string, o volume.Object) bool {
		n := newNode(t)
		p := podtest.Pod(t, "volumes: [{name: v, projected: {sources: ["+spec+"]}}]")
		return n.plugins[volume.Projected].(volume.Refresher).Shows(p, &p.Spec.Volumes[0], o)
	}
	const (
		named  = "{clusterTrustBundle: {name: ca, path: ca}}"
		signer = "{clusterTrustBundle: {signerName: x, labelSelector: {}, path: ca}}"
		key    = "{podCertificate: {signerName: x, keyType: ED25519, keyPath: k}}"
	)
	for name, c := range map[string]struct {
		spec string
		o    volume.Object
		want bool
	}{
		"bundle by name":                          {named, volume.Object{Kind: volume.KindTrustBundle, Name: "ca"}, true},
		"another bundle":                          {named, volume.Object{Kind: volume.KindTrustBundle, Name: "other"}, false},
		"bundle by signer name":                   {signer, volume.Object{Kind: volume.KindTrustBundle, Name: "other"}, true},
		"any object":                              {signer, volume.Object{}, true},
		"certificate of the pod":                  {key, volume.Object{Kind: volume.KindPodCertificate, Namespace: "default", Name: "web"}, true},
		"certificate of another pod":              {key, volume.Object{Kind: volume.KindPodCertificate, Namespace: "default", Name: "db"}, false},
		"bundle, volume without bundle":           {key, volume.Object{Kind: volume.KindTrustBundle, Name: "ca"}, false},
		"certificate, volume without certificate": {named, volume.Object{Kind: volume.KindPodCertificate, Name: "web"}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, shows(c.spec, c.o)) })
	}
}
