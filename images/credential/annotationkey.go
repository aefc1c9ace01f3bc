// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"regexp"
	"strings"
)

// The maximum lengths of the two parts of an annotation key, in bytes.
const (
	maxKeyPrefix = 253
	maxKeyName   = 63
)

// isAnnotationKey reports whether key is a valid annotation key: NAME or SUBDOMAIN/NAME. Source: IsQualifiedName in
// k8s.io/apimachinery/pkg/util/validation, called by validateServiceAccountAnnotationKeys in
// pkg/credentialprovider/plugin/config.go.
func isAnnotationKey(key string) bool {
	prefix, name, hasPrefix := strings.Cut(strings.ToLower(key), "/")
	if !hasPrefix {
		prefix, name = "", prefix
	}
	if len(name) > maxKeyName || len(prefix) > maxKeyPrefix || hasPrefix && !isSubdomain(prefix) {
		return false
	}
	return regexp.MustCompile(`^[a-z0-9]([-_.a-z0-9]*[a-z0-9])?$`).MatchString(name)
}

func isSubdomain(s string) bool {
	return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`).MatchString(s)
}
