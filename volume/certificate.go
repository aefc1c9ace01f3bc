// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"time"
)

// PodCertificate is the private key of a pod and the certificate chain for it, PEM-encoded.
type PodCertificate struct {
	Key, Chain []byte
}

// CertificateRequest has the fields for the spec of a PodCertificateRequest object. The issuer adds the UIDs of the service
// account and the node.
type CertificateRequest struct {
	Namespace, Pod, PodUID string
	ServiceAccount         string
	Signer                 string
	MaxExpirationSeconds   *int32            // maximum lifetime; nil: the API server decides
	StubPKCS10Request      []byte            // DER-encoded PKCS #10 request without a subject: has the public key, and its signature proves possession of the private key
	Annotations            map[string]string // userAnnotations of the projected volume source; unverified
}

// IssuedCertificate is the certificate that a [CertificateIssuer] returned for a [CertificateRequest].
type IssuedCertificate struct {
	Chain          []byte    // PEM, the leaf certificate first
	BeginRefreshAt time.Time // earliest time of the renewal
	NotAfter       time.Time // expiry of the leaf certificate
}

// CertificateIssuer obtains certificates for the keys of pods, such as from the PodCertificateRequest API.
type CertificateIssuer interface {
	// Issue blocks until the certificate is issued, and returns a [*CertificateRefusedError] if the request is denied or has
	// failed permanently. It may block until ctx ends, by default 15 min: a person may have to approve the request.
	Issue(ctx context.Context, request CertificateRequest) (IssuedCertificate, error)
}

// CertificateRefusedError means that a [CertificateRequest] was denied or has failed permanently: it must not be repeated.
type CertificateRefusedError struct {
	Denied          bool // true: denied by a policy or a person; false: the signer has failed
	Reason, Message string
}

// Error returns the message of the kubelet.
func (e *CertificateRefusedError) Error() string {
	verb := "failed"
	if e.Denied {
		verb = "denied"
	}
	return fmt.Sprintf("PodCertificateRequest was permanently %s: reason=%q message=%q", verb, e.Reason, e.Message)
}
