// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert

import (
	"context"
	"fmt"
	"time"
)

// Request is what a signer is asked for: the spec of a PodCertificateRequest, without what the caller of a cluster knows itself,
// which are the UIDs of the service account and of the node.
type Request struct {
	Namespace, Pod, PodUID string
	ServiceAccount         string
	Signer                 string
	MaxSeconds             *int32            // how long the certificate may be valid; nil: the server decides
	Stub                   []byte            // an empty PKCS #10 request as DER: its key is certified, its signature proves that we have it
	Annotations            map[string]string // of the source in the pod; nobody has verified them
}

// Issued is a certificate.
type Issued struct {
	Chain          []byte    // PEM, the leaf first
	BeginRefreshAt time.Time // from when on another one may be asked for
	NotAfter       time.Time // when it expires
}

// Issuer has keys certified.
type Issuer interface {
	// Issue returns when the certificate was issued, or a [*RefusedError] when it was refused for good. It may take until ctx
	// ends, 15 min as a rule: a person may have to approve.
	Issue(ctx context.Context, r Request) (Issued, error)
}

// IssuerFunc is a function that is an [Issuer].
type IssuerFunc func(ctx context.Context, r Request) (Issued, error)

// Issue calls the function.
func (f IssuerFunc) Issue(ctx context.Context, r Request) (Issued, error) { return f(ctx, r) }

var _ Issuer = IssuerFunc(nil)

// RefusedError is the answer that a request was denied, or has failed, for good.
type RefusedError struct {
	Denied          bool // by a policy or a person; else the signer has failed
	Reason, Message string
}

// Error is in the words of the kubelet.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("PodCertificateRequest was permanently %s: reason=%q message=%q", e.verb(), e.Reason, e.Message)
}

func (e *RefusedError) verb() string {
	if e.Denied {
		return "denied"
	}
	return "failed"
}

// condition is the condition of a PodCertificateRequest that says so, and the reason of the event about it.
func (e *RefusedError) condition() string {
	if e.Denied {
		return "Denied"
	}
	return "Failed"
}
