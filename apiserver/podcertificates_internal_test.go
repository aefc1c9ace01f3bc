// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/volume"
)

func bundle(name, signer, text string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": name}},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
	}
}

// Cluster trust bundles are requested after the first use by a pod. From then on they are watched, and changes are reported to
// volumes.
func TestTrustBundles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		all := apiservertest.Match{Resource: "clustertrustbundles"}
		require.NoError(t, w.server.Put(bundle("a", "", "A")))
		time.Sleep(time.Hour)
		require.Zero(t, w.server.CountRequests(all), "no request before the first use by a pod")
		require.Zero(t, w.server.CountRequests(apiservertest.Match{Resource: "podcertificaterequests"}))

		got, err := w.TrustBundles(t.Context())
		require.NoError(t, err)
		require.Equal(t, []volume.TrustBundle{{Name: "a", Labels: map[string]string{"of": "a"}, PEM: "A"}}, got)
		require.NoError(t, w.server.Put(bundle("b", "example.com/s", "B"), bundle("a", "", "A2")))
		synctest.Wait()
		got, err = w.TrustBundles(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"A2", "B"}, []string{got[0].PEM, got[1].PEM})
		w.mu.Lock()
		require.Contains(t, w.told, volume.KindTrustBundle+" /b")
		w.mu.Unlock()

		w.server.SetUnavailable(true)
		time.Sleep(time.Hour)
		got, err = w.TrustBundles(t.Context())
		require.NoError(t, err, "bundles stay available while the API server is unavailable")
		require.Len(t, got, 2)
	})
	synctest.Test(t, func(t *testing.T) {
		w := start(t, ObjectsOptions{}, true)
		w.server.Fail("list", "clustertrustbundles", 404)
		w.server.Fail("watch", "clustertrustbundles", 404)
		_, err := w.TrustBundles(t.Context())
		require.ErrorContains(t, err, "cluster trust bundles: they are not listed yet: ", "an older API server has no trust bundles")
	})
}

// certifiedPod is a pod that needs a certificate, with its service account and node.
func certifiedPod(t *testing.T) (*world, volume.CertificateRequest) {
	w := start(t, ObjectsOptions{}, true)
	require.NoError(t, w.server.Put(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app", UID: "account-uid"}},
	))
	return w, volume.CertificateRequest{
		Namespace: "shop", Pod: "web", PodUID: "pod-uid", ServiceAccount: "app", Signer: "example.com/s", MaxExpirationSeconds: new(int32(3600)),
		StubPKCS10Request: []byte("stub"), Annotations: map[string]string{"a": "b"},
	}
}

// answer is the result of Issue.
type answer struct {
	volume.IssuedCertificate
	err error
}

// startIssue calls Issue in a goroutine, and returns the created request and a channel for the result.
func (w *world) startIssue(ctx context.Context, t *testing.T, r volume.CertificateRequest) (*certificatesv1.PodCertificateRequest, <-chan answer) {
	t.Helper()
	known := map[string]bool{}
	for _, o := range apiservertest.List[*certificatesv1.PodCertificateRequest](w.server) {
		known[o.Name] = true
	}
	answers := make(chan answer, 1)
	go func() {
		issued, err := w.Issue(ctx, r)
		answers <- answer{issued, err}
	}()
	synctest.Wait()
	for _, o := range apiservertest.List[*certificatesv1.PodCertificateRequest](w.server) {
		if !known[o.Name] {
			return o, answers
		}
	}
	require.FailNow(t, "no certificate request was created")
	return nil, nil
}

// setOutcome sets the status of a request.
func (w *world) setOutcome(t *testing.T, o *certificatesv1.PodCertificateRequest, kind string, status certificatesv1.PodCertificateRequestStatus) {
	t.Helper()
	status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Why", Message: "because"}}
	require.NoError(t, apiservertest.Change(w.server, o.Namespace, o.Name, func(o *certificatesv1.PodCertificateRequest) { o.Status = status }))
}

// A pod certificate is requested with the UIDs of pod, service account and node, and Issue returns the signed certificate.
func TestPodCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := certifiedPod(t)
		o, answers := w.startIssue(t.Context(), t, r)
		require.Equal(t, certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/s", PodName: "web", PodUID: "pod-uid", ServiceAccountName: "app", ServiceAccountUID: "account-uid",
			NodeName: "n1", NodeUID: "node-uid", MaxExpirationSeconds: new(int32(3600)), StubPKCS10Request: []byte("stub"),
			UnverifiedUserAnnotations: map[string]string{"a": "b"},
		}, o.Spec)
		require.Equal(t, "pod-uid", string(o.OwnerReferences[0].UID))
		w.setOutcome(t, o, "Pending", certificatesv1.PodCertificateRequestStatus{})
		time.Sleep(5 * time.Minute) // until a person approves the request
		require.Empty(t, answers)
		begin, end := metav1.NewTime(time.Now().Add(time.Hour)), metav1.NewTime(time.Now().Add(2*time.Hour))
		w.setOutcome(t, o, certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestStatus{
			CertificateChain: "CHAIN", BeginRefreshAt: &begin, NotAfter: &end,
		})
		got := <-answers
		require.NoError(t, got.err)
		require.Equal(t, "CHAIN", string(got.Chain))
		require.True(t, got.BeginRefreshAt.Equal(begin.Time) && got.NotAfter.Equal(end.Time))
	})
}

// A refused request is a permanent error; other failures are retried.
func TestPodCertificatesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := certifiedPod(t)
		for _, kind := range []string{certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed} {
			o, answers := w.startIssue(t.Context(), t, r)
			w.setOutcome(t, o, kind, certificatesv1.PodCertificateRequestStatus{})
			refused, ok := errors.AsType[*volume.CertificateRefusedError]((<-answers).err)
			require.True(t, ok)
			require.Equal(t, volume.CertificateRefusedError{Denied: kind == "Denied", Reason: "Why", Message: "because"}, *refused)
		}

		o, answers := w.startIssue(t.Context(), t, r)
		w.setOutcome(t, o, certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestStatus{CertificateChain: "CHAIN"})
		require.ErrorContains(t, (<-answers).err, "was issued without status.certificateChain, beginRefreshAt or notAfter")

		o, answers = w.startIssue(t.Context(), t, r)
		require.NoError(t, w.server.Remove(o))
		require.ErrorContains(t, (<-answers).err, "shop/"+o.Name+": it was deleted before it was issued")

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, answers = w.startIssue(ctx, t, r)
		require.ErrorContains(t, (<-answers).err, "was neither issued nor denied: context deadline exceeded")

		r.ServiceAccount = "nobody"
		_, err := w.Issue(t.Context(), r)
		require.ErrorContains(t, err, "shop/nobody")
	})
}
