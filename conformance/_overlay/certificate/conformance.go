// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate gets this file by the overlay of package conformance. It exports the template of the kubelet's serving
// certificate.
package certificate

import (
	"crypto/x509"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConformanceTemplate returns the template of the serving certificate that the kubelet requests for a node with this name
// and these addresses. If the kubelet requests no certificate, it returns nil.
func ConformanceTemplate(node string, addresses []v1.NodeAddress) *x509.CertificateRequest {
	return newGetTemplateFn(types.NodeName(node), func() []v1.NodeAddress { return addresses })()
}
