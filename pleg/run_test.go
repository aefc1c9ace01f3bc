// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/pleg"
)

// A second Run fails: two loops must not write to one cache.
func TestSecondRunFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := pleg.New(critest.New(critest.Options{}), pleg.Options{})
		go func() { _ = g.Run(t.Context()) }()
		synctest.Wait()
		require.EqualError(t, g.Run(t.Context()), "pleg.Generator: second call of Run")
	})
}

// Functions of Notify get each pod once per relist, after the sink, also if they are added late.
func TestNotifyOncePerPodAndRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		start := func(pod string) {
			ctx := t.Context()
			s := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: pod, Name: pod, Namespace: "default"}}
			sandbox, err := rt.RunSandbox(ctx, s)
			require.NoError(t, err)
			id, err := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "main"}, s)
			require.NoError(t, err)
			require.NoError(t, rt.StartContainer(ctx, id))
		}
		start("a")
		start("b")
		var heard []string
		g := pleg.New(rt, pleg.Options{Sink: func(events []pleg.Event) {
			heard = append(heard, fmt.Sprint(len(events), " events"))
			clear(events) // the sink owns the slice
		}})
		listen := func(name string) func(uids ...string) {
			return func(uids ...string) { heard = append(heard, name+" "+strings.Join(uids, " ")) }
		}
		g.Notify(listen("first"))
		g.Notify(listen("second"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, []string{"4 events", "first a b", "second a b"}, heard)

		g.Notify(listen("late"))
		heard = nil
		require.NoError(t, rt.Kill("b/main", 1))
		synctest.Wait()
		require.Equal(t, []string{"1 events", "first b", "second b", "late b"}, heard)
		cancel()
		require.NoError(t, <-ended)
	})
}
