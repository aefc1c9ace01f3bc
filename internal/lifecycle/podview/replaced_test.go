// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// A container that is stopped for its successor is shown as it was, until the successor runs or has exited.
func TestHideReplacement(t *testing.T) {
	instance := func(id string, attempt uint32, state cri.ContainerState) cri.Container {
		return cri.Container{ID: id, Name: id[:1], Attempt: attempt, State: state}
	}
	before, other := instance("a1", 1, cri.ContainerRunning), instance("b0", 0, cri.ContainerExited)
	old := instance("a0", 0, cri.ContainerExited)
	for name, test := range map[string]struct{ observed, want []cri.Container }{
		"still running":        {[]cri.Container{other, before}, []cri.Container{other, before}},
		"exited":               {[]cri.Container{other, instance("a1", 1, cri.ContainerExited)}, []cri.Container{other, before}},
		"removed":              {[]cri.Container{other}, []cri.Container{other, before}},
		"of unknown state":     {[]cri.Container{old, instance("a1", 1, cri.ContainerUnknown)}, []cri.Container{old, before}},
		"successor created":    {[]cri.Container{instance("a1", 1, cri.ContainerExited), instance("a2", 2, cri.ContainerCreated)}, []cri.Container{before}},
		"successor running":    {[]cri.Container{instance("a1", 1, cri.ContainerExited), instance("a2", 2, cri.ContainerRunning)}, nil},
		"successor has exited": {[]cri.Container{instance("a1", 1, cri.ContainerExited), instance("a2", 2, cri.ContainerExited)}, nil},
	} {
		if test.want == nil {
			test.want = test.observed
		}
		got := podview.HideReplacement(cri.Pod{Containers: test.observed}, []cri.Container{before})
		assert.ElementsMatch(t, test.want, got.Containers, name)
		assert.Equal(t, test.observed, podview.HideReplacement(cri.Pod{Containers: test.observed}, nil).Containers, name)
	}

	created, anew := instance("a1", 1, cri.ContainerCreated), cri.Container{ID: "a1-again", Name: "a", Attempt: 1}
	observed := cri.Pod{Containers: []cri.Container{old}}
	assert.Equal(t, []cri.Container{old, created}, podview.HideReplacement(observed, []cri.Container{created}).Containers, "removed before it was started")
	for state, want := range map[cri.ContainerState]cri.Container{cri.ContainerCreated: created, cri.ContainerRunning: {ID: "a1-again", Name: "a", Attempt: 1, State: cri.ContainerRunning}} {
		anew.State = state
		observed.Containers = []cri.Container{old, anew}
		assert.Equal(t, []cri.Container{old, want}, podview.HideReplacement(observed, []cri.Container{created}).Containers, "created anew")
	}
}
