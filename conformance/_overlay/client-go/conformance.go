// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate gets this file by way of the overlay: it opens when a certificate is replaced.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"k8s.io/klog/v2"
)

// ConformanceDeadline returns when a certificate is replaced by what is asked for, at a time.
func ConformanceDeadline(cert *tls.Certificate, template *x509.CertificateRequest, force bool, now time.Time) time.Time {
	m := &manager{
		cert: cert, getTemplate: func() *x509.CertificateRequest { return template }, forceRotation: force,
		now: func() time.Time { return now },
	}
	return m.nextRotationDeadline(klog.Background())
}
