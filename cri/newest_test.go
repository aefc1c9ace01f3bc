// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
)

// The highest attempt is the newest, regardless of creation time and position; among equal attempts the object created last.
func TestNewestObjectHasHighestAttempt(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	p := cri.Pod{
		Sandboxes: []cri.Sandbox{{ID: "s1", Attempt: 1, CreatedAt: at(3)}, {ID: "s2", Attempt: 2, CreatedAt: at(1)}, {ID: "s3", Attempt: 2, CreatedAt: at(2)}},
		Containers: []cri.Container{
			{ID: "c3", Name: "main", Attempt: 2, CreatedAt: at(2), State: cri.ContainerRunning},
			{ID: "c2", Name: "main", Attempt: 2, CreatedAt: at(1), State: cri.ContainerExited},
			{ID: "c1", Name: "main", Attempt: 1, CreatedAt: at(9), State: cri.ContainerExited},
			{ID: "h1", Name: "helper", Attempt: 7},
		},
	}
	require.Equal(t, "s3", p.NewestSandbox().ID)
	require.Equal(t, "c3", p.NewestContainer("main").ID)
	require.Equal(t, "h1", p.NewestContainer("helper").ID)
	require.Nil(t, p.NewestContainer("other"))
	require.Equal(t, "c2", p.NewestContainerWhere("main", func(c *cri.Container) bool { return c.State == cri.ContainerExited }).ID)
	require.Nil(t, (&cri.Pod{}).NewestSandbox())
	require.Zero(t, testing.AllocsPerRun(10, func() { p.NewestContainer("main"); p.NewestSandbox() }))
}

// A container that was created while another instance ran, by a call that the runtime executed late, is not the newest, even
// with a higher attempt. A container created after that instance exited is.
func TestNewestIgnoresContainerCreatedByLateCall(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	ran := cri.Container{ID: "ran", Name: "main", CreatedAt: at(1), StartedAt: at(1), FinishedAt: at(5), State: cri.ContainerExited}
	runs := cri.Container{ID: "runs", Name: "main", CreatedAt: at(1), StartedAt: at(1), State: cri.ContainerRunning}
	never := cri.Container{ID: "never", Name: "main", CreatedAt: at(1), FinishedAt: at(5), State: cri.ContainerExited}
	created := func(s int64) cri.Container {
		return cri.Container{ID: "created", Name: "main", Attempt: 1, CreatedAt: at(s), State: cri.ContainerCreated}
	}
	for _, test := range []struct {
		a, b cri.Container
		want string
	}{
		{ran, created(3), "ran"},
		{ran, created(5), "created"},
		{ran, created(6), "created"},
		{runs, created(3), "runs"},
		{never, created(3), "created"},
	} {
		for _, pair := range [][]cri.Container{{test.a, test.b}, {test.b, test.a}} {
			p := cri.Pod{Containers: pair}
			require.Equal(t, test.want, p.NewestContainer("main").ID, "%+v", pair)
		}
	}
}
