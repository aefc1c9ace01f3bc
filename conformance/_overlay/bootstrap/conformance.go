// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap gets this file by the overlay of package conformance. It exports functions that name certificate signing
// requests and validate kubeconfigs.
package bootstrap

import (
	"crypto/x509/pkix"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// ConformanceName calls digestedName: it returns the name of the certificate signing request for a key, subject and usages.
func ConformanceName(publicKey any, subject *pkix.Name, usages []certificatesv1.KeyUsage) (string, error) {
	return digestedName(publicKey, subject, usages)
}

// ConformanceValid calls isClientConfigStillValid: it reports whether the kubelet uses the existing kubeconfig at path.
func ConformanceValid(path string) (bool, error) { return isClientConfigStillValid(path) }
