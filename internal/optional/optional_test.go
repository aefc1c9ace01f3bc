// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package optional_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/optional"
)

func TestFirst(t *testing.T) {
	a, b := new(1), new(2)
	assert.Same(t, a, optional.First(a, b))
	assert.Same(t, b, optional.First(nil, b))
	assert.Nil(t, optional.First[int](nil, nil))
}

func TestOrZero(t *testing.T) {
	assert.Equal(t, "", *optional.OrZero[string](nil))
	assert.Equal(t, "a", *optional.OrZero(new("a")))
}

func TestIsTrue(t *testing.T) {
	for _, test := range []struct {
		value *bool
		want  bool
	}{{nil, false}, {new(false), false}, {new(true), true}} {
		assert.Equal(t, test.want, optional.IsTrue(test.value))
	}
}
