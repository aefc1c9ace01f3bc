// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/gc"
)

func TestJoinContainerHooksCallsEachHookAndSkipsNil(t *testing.T) {
	var calls []string
	hooks := func(name string) gc.ContainerHooks {
		return gc.ContainerHooks{
			Removed:    func(gc.Removal) { calls = append(calls, name+" removed") },
			DirRemoved: func(path string) { calls = append(calls, name+" "+path) },
			Event:      func(reason, message string) { calls = append(calls, name+" "+reason+" "+message) },
		}
	}
	joined := gc.JoinContainerHooks(hooks("a"), gc.ContainerHooks{}, hooks("b"))
	joined.Removed(gc.Removal{})
	joined.DirRemoved("/x")
	joined.Event("Failed", "m")
	require.Equal(t, []string{"a removed", "b removed", "a /x", "b /x", "a Failed m", "b Failed m"}, calls)
}
