// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap gets this file by the overlay of package conformance. It exports functions that name certificate signing
// requests and validate kubeconfigs.
package bootstrap

import (
	"crypto/x509/pkix"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// ConformanceName returns the name of the certificate signing request that the kubelet creates for publicKey, subject and
// usages. It calls digestedName.
func ConformanceName(publicKey any, subject *pkix.Name, usages []certificatesv1.KeyUsage) (string, error) {
	return digestedName(publicKey, subject, usages)
}

// ConformanceValid reports whether the kubelet continues to use the kubeconfig file at path. It calls
// isClientConfigStillValid.
func ConformanceValid(path string) (bool, error) { return isClientConfigStillValid(path) }
