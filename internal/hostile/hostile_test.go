// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/hostile"
)

// Manifests with equal names would overwrite each other, and a manifest above the size limit would not be parsed.
func TestAll(t *testing.T) {
	const size = 1 << 20
	seen := make(map[string]bool)
	fine := 0
	for _, m := range hostile.All(size) {
		assert.False(t, seen[m.Name], m.Name)
		seen[m.Name] = true
		assert.Less(t, len(m.Text), size+2_000, m.Name)
		if m.Fine {
			fine++
		}
	}
	assert.Greater(t, len(seen), 130)
	assert.Less(t, fine, 40)
}
