// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/pleg"
)

// It keeps two loops from writing one cache.
func TestRunIsCalledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pleg.New(critest.New(critest.Options{}), pleg.Options{})
		go func() { _ = g.Run(t.Context()) }()
		synctest.Wait()
		require.EqualError(t, g.Run(t.Context()), "pleg.Generator: second call of Run")
	})
}
