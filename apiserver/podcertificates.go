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

// addCertificateTables creates the tables of cluster trust bundles and of the node's pod certificate requests. They send no
// request before their first use.
func (b *Objects) addCertificateTables(client *kubeapi.Client, node string) {
	b.bundles = newLazyTable(kubeapi.In(client, kubeapi.ClusterTrustBundles, ""), kubeapi.TableOptions[*certificatesv1.ClusterTrustBundle, volume.TrustBundle]{
		MaxObjects: maxTrustBundles,
		Transform: func(o *certificatesv1.ClusterTrustBundle) volume.TrustBundle {
			return volume.TrustBundle{Name: o.Name, Labels: o.Labels, Signer: o.Spec.SignerName, PEM: o.Spec.TrustBundle}
		},
	}, func(names ...string) {
		for _, name := range names {
			b.watchers.Notify(volume.KindTrustBundle, "", name)
		}
	})
	b.requests = newLazyTable(kubeapi.In(client, kubeapi.PodCertificateRequests, ""), kubeapi.TableOptions[*certificatesv1.PodCertificateRequest, requestOutcome]{
		FieldSelector: "spec.nodeName=" + node,
		Transform:     outcomeOf,
	}, nil)
}

// outcomeOf returns the outcome of a PodCertificateRequest from its conditions: issued, denied, failed or pending.
func outcomeOf(request *certificatesv1.PodCertificateRequest) requestOutcome {
	outcome := requestOutcome{uid: request.UID}
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			denied := c.Type == certificatesv1.PodCertificateRequestConditionTypeDenied
			outcome.final, outcome.err = true, &volume.CertificateRefusedError{Denied: denied, Reason: c.Reason, Message: c.Message}
			return outcome
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			outcome.final = true
			if request.Status.CertificateChain == "" || request.Status.BeginRefreshAt == nil || request.Status.NotAfter == nil {
				outcome.err = fmt.Errorf("pod certificate request %s/%s was issued without status.certificateChain, beginRefreshAt or notAfter", request.Namespace, request.Name)
				return outcome
			}
			outcome.issued = volume.IssuedCertificate{
				Chain: []byte(request.Status.CertificateChain), BeginRefreshAt: request.Status.BeginRefreshAt.Time, NotAfter: request.Status.NotAfter.Time,
			}
			return outcome
		}
	}
	return outcome
}

// TrustBundles returns all cluster trust bundles. The first call starts a watch and waits at most 2 s for the first list.
func (b *Objects) TrustBundles(ctx context.Context) ([]volume.TrustBundle, error) {
	if err := b.bundles.awaitFirstList(ctx, "cluster trust bundles"); err != nil {
		return nil, err
	}
	return b.bundles.table.List(), nil
}

// Issue creates a PodCertificateRequest and waits until it is issued, denied or failed. The error of a denied or failed
// request is a [*volume.CertificateRefusedError]. The first call also starts a watch of the requests of this node.
func (b *Objects) Issue(ctx context.Context, request volume.CertificateRequest) (none volume.IssuedCertificate, err error) {
	if err := b.requests.awaitFirstList(ctx, "pod certificate requests"); err != nil {
		return none, err
	}
	account, err := readObject(ctx, b.client, kubeapi.ServiceAccounts, request.Namespace, request.ServiceAccount)
	if err != nil {
		return none, err
	}
	node, err := kubeapi.In(b.client, kubeapi.Nodes, "").Get(ctx, b.node)
	if err != nil {
		return none, err
	}
	created, err := retryForbidden(ctx, func(ctx context.Context) (*certificatesv1.PodCertificateRequest, error) {
		return kubeapi.In(b.client, kubeapi.PodCertificateRequests, request.Namespace).Create(ctx, newCertificateRequest(request, account.UID, b.node, node.UID))
	})
	if err != nil {
		return none, err
	}
	return b.awaitOutcome(ctx, created)
}

// newCertificateRequest returns the PodCertificateRequest object for a request. The pod owns the object.
func newCertificateRequest(request volume.CertificateRequest, accountUID types.UID, node string, nodeUID types.UID) *certificatesv1.PodCertificateRequest {
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: request.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: request.Pod, UID: types.UID(request.PodUID)}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: request.Signer, PodName: request.Pod, PodUID: types.UID(request.PodUID),
			ServiceAccountName: request.ServiceAccount, ServiceAccountUID: accountUID, NodeName: types.NodeName(node), NodeUID: nodeUID,
			MaxExpirationSeconds: request.MaxExpirationSeconds, StubPKCS10Request: request.StubPKCS10Request, UnverifiedUserAnnotations: request.Annotations,
		},
	}
}

// errRequestDeleted reports that a pod certificate request was deleted before it was issued.
var errRequestDeleted = errors.New("it was deleted before it was issued")

// awaitOutcome waits until the created PodCertificateRequest is issued, denied, failed or deleted, or until ctx ends.
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
