// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"regexp"
	"strings"
)

// Limits of a qualified name. Source: k8s.io/apimachinery/pkg/util/validation.
const (
	maxNamePart   = 63
	maxNamePrefix = 253
)

var (
	namePart   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	namePrefix = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// quotaPrefix precedes the name of an extended resource in a ResourceQuota.
const quotaPrefix = "requests."

// isExtendedResource reports whether name is a valid name of an extended resource, such as "vendor.com/gpu". Source: IsExtendedResourceName in
// pkg/apis/core/v1/helper.
func isExtendedResource(name string) bool {
	prefix, part, found := strings.Cut(name, "/")
	prefix = quotaPrefix + prefix
	return found && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, quotaPrefix) &&
		len(part) <= maxNamePart && namePart.MatchString(part) && len(prefix) <= maxNamePrefix && namePrefix.MatchString(prefix)
}
