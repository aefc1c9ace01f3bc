// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate gets this file by the overlay of package conformance. It exports the deadline for the rotation of a
// certificate.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"k8s.io/klog/v2"
)

// ConformanceDeadline returns the time at which client-go's certificate manager plans to replace cert. template is the
// template of the next request. force is true if a rotation was forced.
func ConformanceDeadline(cert *tls.Certificate, template *x509.CertificateRequest, force bool, now time.Time) time.Time {
	m := &manager{
		cert: cert, getTemplate: func() *x509.CertificateRequest { return template }, forceRotation: force,
		now: func() time.Time { return now },
	}
	return m.nextRotationDeadline(klog.Background())
}
