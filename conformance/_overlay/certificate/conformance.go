// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package certificate gets this file by way of the overlay: it opens what a serving certificate is for.
package certificate

import (
	"crypto/x509"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConformanceTemplate returns what the serving certificate of a node is for, or nil.
func ConformanceTemplate(node string, addresses []v1.NodeAddress) *x509.CertificateRequest {
	return newGetTemplateFn(types.NodeName(node), func() []v1.NodeAddress { return addresses })()
}
