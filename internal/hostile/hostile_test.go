// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/hostile"
)

// A manifest that is written under the name of another one would not be tested, and neither would one that is too
// large to be read at all.
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
