// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A key that is invalid as an annotation key is an error of the configuration.
func TestIsAnnotationKey(t *testing.T) {
	long, label := strings.Repeat("a", 63), strings.Repeat("a", 49)+"."
	for key, want := range map[string]bool{
		"role": true, "a": true, "Role_1.x-Y": true, "example.com/role": true, "Example.COM/Role": true,
		long: true, "a.b-c/" + long: true, strings.Repeat(label, 5) + "aaa/a": true,
		"": false, "role-": false, "-role": false, "example.com/role-": false, "example.com/": false, "/role": false,
		"example.com-/role": false, "-x/role": false, "a..b/c": false, "a_b/c": false, "a/b/c": false, "a b": false, "ä": false,
		"role\n": false, long + "a": false, strings.Repeat(label, 5) + "aaaa/a": false,
	} {
		assert.Equal(t, want, isAnnotationKey(key), key)
	}
}
