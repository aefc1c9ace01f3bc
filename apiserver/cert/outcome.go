// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RefusedError is about a request that will never be issued.
type RefusedError struct {
	Request string // its name
	Denied  bool   // by a controller or a person; else the signer has failed
	Reason  string // of the condition
	Message string // of the condition
}

// Error names the request and says why.
func (e *RefusedError) Error() string {
	verb := "has failed"
	if e.Denied {
		verb = "was denied"
	}
	return fmt.Sprintf("certificate signing request %s %s: %.200q: %.1000q", e.Request, verb, e.Reason, e.Message)
}

// requestOutcome returns the certificate of a request that was made with that UID, as PEM, nil as long as there is none, or why there
// will be none. The request is nil when there is none of that name.
func requestOutcome(r *certificatesv1.CertificateSigningRequest, name string, uid types.UID) ([]byte, error) {
	if r == nil {
		return nil, fmt.Errorf("certificate signing request %s was deleted", name)
	}
	if r.UID != uid {
		return nil, fmt.Errorf("certificate signing request %s was replaced by another one: its UID is %q, not %q", name, r.UID, uid)
	}
	approved := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, &RefusedError{Request: name, Denied: c.Type == certificatesv1.CertificateDenied, Reason: c.Reason, Message: c.Message}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(r.Status.Certificate) == 0 {
		return nil, nil
	}
	return r.Status.Certificate, nil
}
