// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/ownership"
)

// pod returns a pod whose sandbox has the first owner. Each further owner has a container.
func pod(owners ...string) *cri.Pod {
	labels := func(owner string) map[string]string {
		if owner == "" {
			return nil
		}
		return map[string]string{ownership.Label: owner}
	}
	p := &cri.Pod{Sandboxes: []cri.Sandbox{{ID: "sandbox of " + owners[0], Labels: labels(owners[0])}}}
	for _, owner := range owners[1:] {
		p.Containers = append(p.Containers, cri.Container{ID: "container of " + owner, Labels: labels(owner)})
	}
	return p
}

func TestMarkOwnsForeignMarkAndFilter(t *testing.T) {
	for _, test := range []struct {
		name    string
		mark    ownership.Mark
		pod     *cri.Pod
		owns    bool
		other   ownership.Mark
		foreign bool
		own     int
	}{
		{"all own", "me", pod("me", "me"), true, "", false, 2},
		{"foreign container", "me", pod("me", "they"), true, "they", true, 1},
		{"foreign sandbox", "me", pod("they", "me"), true, "they", true, 1},
		{"container without owner", "me", pod("me", ""), true, "", true, 1},
		{"nothing own", "me", pod("they", ""), false, "they", true, 0},
		{"no mark, foreign container", "", pod("", "they"), false, "they", true, 1},
		{"no mark, no owners", "", pod("", ""), false, "", false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.owns, test.mark.Owns(test.pod))
			other, foreign := test.mark.ForeignMark(test.pod)
			assert.Equal(t, test.foreign, foreign)
			assert.Equal(t, test.other, other)
			before := len(test.pod.Sandboxes) + len(test.pod.Containers)
			own := test.mark.Filter(*test.pod)
			assert.Equal(t, test.own, len(own.Sandboxes)+len(own.Containers))
			assert.Equal(t, before, len(test.pod.Sandboxes)+len(test.pod.Containers), "Filter does not modify the pod")
		})
	}
}

func TestSetLabelReplacesLabelOfPod(t *testing.T) {
	forged := map[string]string{ownership.Label: "forged", "app": "web"}
	ownership.Mark("me").SetLabel(forged)
	assert.Equal(t, map[string]string{ownership.Label: "me", "app": "web"}, forged)

	ownership.Mark("").SetLabel(forged)
	assert.Equal(t, map[string]string{"app": "web"}, forged, "without a mark the forged owner is removed")
}
