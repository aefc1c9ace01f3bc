// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
)

func TestRequestOutcomeOfConditions(t *testing.T) {
	request := func(certificate string, conditions ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
		r := &certificatesv1.CertificateSigningRequest{}
		r.UID, r.Status.Certificate = "uid", []byte(certificate)
		for _, c := range conditions {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Reason: "Because", Message: "of\nthis"})
		}
		return r
	}
	other := request("x", certificatesv1.CertificateApproved)
	other.UID = "other"
	for name, test := range map[string]struct {
		request *certificatesv1.CertificateSigningRequest
		want    string
		err     string
	}{
		"new":            {request: request("")},
		"approved":       {request: request("", certificatesv1.CertificateApproved)},
		"signed":         {request: request("x", certificatesv1.CertificateApproved), want: "x"},
		"never approved": {request: request("x")},
		"denied":         {request: request("", certificatesv1.CertificateDenied), err: `certificate signing request csr-1 was denied: "Because": "of\nthis"`},
		"failed": {
			request: request("x", certificatesv1.CertificateApproved, certificatesv1.CertificateFailed),
			err:     `certificate signing request csr-1 has failed: "Because": "of\nthis"`,
		},
		"deleted":  {err: "certificate signing request csr-1 was deleted"},
		"replaced": {request: other, err: `certificate signing request csr-1 was replaced by another one: its UID is "other", not "uid"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := requestOutcome(test.request, "csr-1", "uid")
			assert.Equal(t, test.want, string(got))
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.err)
			}
		})
	}
}
