// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap gets this file by way of the overlay: it opens names of requests, and which kubeconfigs are used.
package bootstrap

import (
	"crypto/x509/pkix"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// ConformanceName returns the name of a request.
func ConformanceName(publicKey any, subject *pkix.Name, usages []certificatesv1.KeyUsage) (string, error) {
	return digestedName(publicKey, subject, usages)
}

// ConformanceValid reports whether a kubeconfig is used.
func ConformanceValid(path string) (bool, error) { return isClientConfigStillValid(path) }
