// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"regexp"
	"strings"
)

// The limits of the two parts of a key, in bytes.
const (
	maxKeyPrefix = 253
	maxKeyName   = 63
)

// isAnnotationKey reports whether an object can have an annotation with a key, in letters of either case: a name with
// an optional DNS subdomain and a slash before it (IsQualifiedName in k8s.io/apimachinery/pkg/util/validation, as in
// validateServiceAccountAnnotationKeys of pkg/credentialprovider/plugin/config.go).
func isAnnotationKey(key string) bool {
	prefix, name, prefixed := strings.Cut(strings.ToLower(key), "/")
	if !prefixed {
		prefix, name = "", prefix
	}
	if len(name) > maxKeyName || len(prefix) > maxKeyPrefix || prefixed && !isSubdomain(prefix) {
		return false
	}
	return regexp.MustCompile(`^[a-z0-9]([-_.a-z0-9]*[a-z0-9])?$`).MatchString(name)
}

func isSubdomain(s string) bool {
	return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`).MatchString(s)
}
