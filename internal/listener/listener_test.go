// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/listener"
)

func TestCallCallsAddedFunctions(t *testing.T) {
	var l listener.List
	require.True(t, l.IsEmpty())
	l.Call("nobody")

	var heard []string
	hear := func(name string) func(uids ...string) {
		return func(uids ...string) { heard = append(heard, name+" "+strings.Join(uids, " ")) }
	}
	l.Add(hear("first"))
	require.False(t, l.IsEmpty())
	added := false
	l.Add(func(...string) { // Call holds no lock while it calls the functions
		if !added {
			added = true
			l.Add(hear("late"))
		}
	})
	l.Call("a", "b")
	l.Call("c")
	require.Equal(t, []string{"first a b", "first c", "late c"}, heard)
	require.Panics(t, func() { l.Add(nil) })
}
