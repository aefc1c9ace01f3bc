// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RefusedError reports a certificate signing request that was denied or has failed, and will never be issued.
type RefusedError struct {
	Request string // name of the CertificateSigningRequest
	Denied  bool   // denied by an approver; false: the signer has failed
	Reason  string // of the condition
	Message string // of the condition
}

// Error returns the name of the request, and the reason and message of its Denied or Failed condition.
func (e *RefusedError) Error() string {
	verb := "has failed"
	if e.Denied {
		verb = "was denied"
	}
	return fmt.Sprintf("certificate signing request %s %s: %.200q: %.1000q", e.Request, verb, e.Reason, e.Message)
}

// requestOutcome returns the issued certificate as PEM, nil while the request is pending, or an error if the request has
// failed.
func requestOutcome(request *certificatesv1.CertificateSigningRequest, name string, createdUID types.UID) (chain []byte, err error) {
	if request == nil {
		return nil, fmt.Errorf("certificate signing request %s was deleted", name)
	}
	if request.UID != createdUID {
		return nil, fmt.Errorf("certificate signing request %s was replaced by another one: its UID is %q, not %q", name, request.UID, createdUID)
	}
	approved := false
	for _, c := range request.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return nil, &RefusedError{Request: name, Denied: c.Type == certificatesv1.CertificateDenied, Reason: c.Reason, Message: c.Message}
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(request.Status.Certificate) == 0 {
		return nil, nil
	}
	return request.Status.Certificate, nil
}
