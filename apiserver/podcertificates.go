// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/volume"
)

var (
	_ volume.TrustBundleLister = (*Objects)(nil)
	_ volume.CertificateIssuer = (*Objects)(nil)
)

// maxTrustBundles limits the cluster trust bundles in memory; each may have about 1 MiB.
const maxTrustBundles = 1000

// bundleTable is the table of ClusterTrustBundle objects.
type bundleTable = lazyTable[*certificatesv1.ClusterTrustBundle, volume.TrustBundle]

// requestTable is the table of PodCertificateRequest objects of this node.
type requestTable = lazyTable[*certificatesv1.PodCertificateRequest, requestOutcome]

// requestOutcome is the state of one PodCertificateRequest.
type requestOutcome struct {
	uid    types.UID
	final  bool // issued, denied or failed
	issued volume.IssuedCertificate
	err    error // why it was not issued, if final
}

// addCertificateTables creates the tables of trust bundles and pod certificate requests. They list nothing before their first
// use.
func (b *Objects) addCertificateTables(c *kubeapi.Client, node string) {
	b.bundles = newLazyTable(kubeapi.In(c, kubeapi.ClusterTrustBundles, ""), kubeapi.TableOptions[*certificatesv1.ClusterTrustBundle, volume.TrustBundle]{
		MaxObjects: maxTrustBundles,
		Transform: func(o *certificatesv1.ClusterTrustBundle) volume.TrustBundle {
			return volume.TrustBundle{Name: o.Name, Labels: o.Labels, Signer: o.Spec.SignerName, PEM: o.Spec.TrustBundle}
		},
	}, func(names ...string) {
		for _, name := range names {
			b.watchers.Notify(volume.KindTrustBundle, "", name)
		}
	})
	b.requests = newLazyTable(kubeapi.In(c, kubeapi.PodCertificateRequests, ""), kubeapi.TableOptions[*certificatesv1.PodCertificateRequest, requestOutcome]{
		FieldSelector: "spec.nodeName=" + node,
		Transform:     outcomeOf,
	}, nil)
}

// outcomeOf reads the state of a request from its conditions.
func outcomeOf(o *certificatesv1.PodCertificateRequest) requestOutcome {
	r := requestOutcome{uid: o.UID}
	for _, c := range o.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			denied := c.Type == certificatesv1.PodCertificateRequestConditionTypeDenied
			r.final, r.err = true, &volume.CertificateRefusedError{Denied: denied, Reason: c.Reason, Message: c.Message}
			return r
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			r.final = true
			if o.Status.CertificateChain == "" || o.Status.BeginRefreshAt == nil || o.Status.NotAfter == nil {
				r.err = fmt.Errorf("pod certificate request %s/%s was issued without status.certificateChain, beginRefreshAt or notAfter", o.Namespace, o.Name)
				return r
			}
			r.issued = volume.IssuedCertificate{
				Chain: []byte(o.Status.CertificateChain), BeginRefreshAt: o.Status.BeginRefreshAt.Time, NotAfter: o.Status.NotAfter.Time,
			}
			return r
		}
	}
	return r
}

// TrustBundles returns all cluster trust bundles. The first call starts to watch them, and waits at most 2 s for the first list.
func (b *Objects) TrustBundles(ctx context.Context) ([]volume.TrustBundle, error) {
	if err := b.bundles.awaitFirstList(ctx, "cluster trust bundles"); err != nil {
		return nil, err
	}
	return b.bundles.table.List(), nil
}

// Issue creates a PodCertificateRequest for the key of a pod and waits until it is issued, denied or failed. The first call
// starts to watch the requests of this node. The error of a denied or failed request is a *volume.CertificateRefusedError.
func (b *Objects) Issue(ctx context.Context, r volume.CertificateRequest) (none volume.IssuedCertificate, err error) {
	if err := b.requests.awaitFirstList(ctx, "pod certificate requests"); err != nil {
		return none, err
	}
	account, err := readObject(ctx, b.client, kubeapi.ServiceAccounts, r.Namespace, r.ServiceAccount)
	if err != nil {
		return none, err
	}
	node, err := kubeapi.In(b.client, kubeapi.Nodes, "").Get(ctx, b.node)
	if err != nil {
		return none, err
	}
	created, err := retryForbidden(ctx, func(ctx context.Context) (*certificatesv1.PodCertificateRequest, error) {
		return kubeapi.In(b.client, kubeapi.PodCertificateRequests, r.Namespace).Create(ctx, newCertificateRequest(r, account.UID, b.node, node.UID))
	})
	if err != nil {
		return none, err
	}
	return b.awaitOutcome(ctx, created)
}

// newCertificateRequest returns the object for r, owned by its pod.
func newCertificateRequest(r volume.CertificateRequest, account types.UID, node string, nodeUID types.UID) *certificatesv1.PodCertificateRequest {
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: r.Pod, UID: types.UID(r.PodUID)}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: r.Signer, PodName: r.Pod, PodUID: types.UID(r.PodUID),
			ServiceAccountName: r.ServiceAccount, ServiceAccountUID: account, NodeName: types.NodeName(node), NodeUID: nodeUID,
			MaxExpirationSeconds: r.MaxExpirationSeconds, StubPKCS10Request: r.StubPKCS10Request, UnverifiedUserAnnotations: r.Annotations,
		},
	}
}

// errRequestDeleted reports that a pod certificate request was deleted before it was issued.
var errRequestDeleted = errors.New("it was deleted before it was issued")

// awaitOutcome waits until the created request is issued, denied, failed or deleted, or ctx ends.
func (b *Objects) awaitOutcome(ctx context.Context, created *certificatesv1.PodCertificateRequest) (none volume.IssuedCertificate, err error) {
	seen := false
	for {
		changed := b.requests.nextChange()
		current, found := b.requests.table.Get(kubeapi.Key(created.Namespace, created.Name))
		found = found && current.uid == created.UID
		switch {
		case found && current.final:
			return current.issued, current.err
		case seen && !found:
			return none, fmt.Errorf("pod certificate request %s/%s: %w", created.Namespace, created.Name, errRequestDeleted)
		}
		seen = found
		select {
		case <-changed:
		case <-ctx.Done():
			return none, fmt.Errorf("pod certificate request %s/%s was neither issued nor denied: %w", created.Namespace, created.Name, context.Cause(ctx))
		}
	}
}
