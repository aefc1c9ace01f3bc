// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"time"
)

// PodCertificate is the private key of a pod and its certificate chain, as PEM.
type PodCertificate struct {
	Key, Chain []byte
}

// CertificateRequest is the spec of a PodCertificateRequest, without the fields that the issuer fills in: the UIDs of the service account
// and of the node.
type CertificateRequest struct {
	Namespace, Pod, PodUID string
	ServiceAccount         string
	Signer                 string
	MaxSeconds             *int32            // longest lifetime of the certificate; nil: the server decides
	Stub                   []byte            // empty PKCS #10 request as DER: its key is certified, its signature proves possession of the key
	Annotations            map[string]string // of the source in the pod; unverified
}

// IssuedCertificate is the result of a [CertificateRequest].
type IssuedCertificate struct {
	Chain          []byte    // PEM, the leaf first
	BeginRefreshAt time.Time // earliest time of the renewal
	NotAfter       time.Time // expiry
}

// CertificateIssuer certifies the keys of pods.
type CertificateIssuer interface {
	// Issue returns once the certificate is issued, or a [*CertificateRefusedError] once the request is denied or has failed for good. It
	// may block until ctx ends, 15 min as a rule: a person may have to approve the request.
	Issue(ctx context.Context, r CertificateRequest) (IssuedCertificate, error)
}

// CertificateRefusedError reports that a [CertificateRequest] was denied, or has failed, for good: it is not repeated.
type CertificateRefusedError struct {
	Denied          bool // by a policy or a person; false: the signer has failed
	Reason, Message string
}

// Error uses the words of the kubelet.
func (e *CertificateRefusedError) Error() string {
	verb := "failed"
	if e.Denied {
		verb = "denied"
	}
	return fmt.Sprintf("PodCertificateRequest was permanently %s: reason=%q message=%q", verb, e.Reason, e.Message)
}
