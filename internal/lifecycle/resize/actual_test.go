// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize_test

import (
	"cmp"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// The actual size is the From size of a resize. In each case the container was created with cpu=250m/500m memory=32Mi/64Mi
// and requests cpu=1/2 memory=1Gi/2Gi.
func TestActualSize(t *testing.T) {
	const createdSize, requestedSize = "cpu=250m/500m memory=32Mi/64Mi", "cpu=1/2 memory=1Gi/2Gi"
	v1 := podspec.Options{}
	protects := podspec.Options{Node: &qos.Node{MemoryCapacity: 8 << 30, Reservation: qos.TieredReservation}}
	tests := map[string]struct {
		options   podspec.Options
		reported  string // resources that the runtime reports; empty: none
		change    func(c *cri.Container)
		requested string // requested resources; empty: cpu=1/2 memory=1Gi/2Gi
		sent      string // last sent size; empty: unknown
		want      string // empty: no resize, as the actual size is the requested size
	}{
		"reports created size":   {reported: createdSize, want: "cpu=250m/500m memory=32Mi/64Mi"},
		"reports requested size": {reported: requestedSize},
		"reports no resources":   {want: "cpu=250m/500m memory=32Mi/64Mi"},
		"last sent size wins over report": {
			reported: createdSize, sent: "cpu=300m/600m memory=48Mi/96Mi", want: "cpu=300m/600m memory=48Mi/96Mi",
		},
		"CPU of one size, memory of the other": {reported: "cpu=1/2 memory=32Mi/64Mi", want: "cpu=1000m/2000m memory=32Mi/64Mi"},
		"reports a third size":                 {reported: "cpu=300m/600m memory=48Mi/96Mi", want: "cpu=300m/600m memory=32Mi/96Mi"},
		"no limits reported":                   {reported: "cpu=300m/", want: "cpu=300m/0m memory=32Mi/0"},
		"limit near the maximum": {
			reported: "cpu=250m/500m", want: "cpu=250m/500m memory=32Mi/9223372036854775807",
			change: func(c *cri.Container) { c.Resources.MemoryLimit = math.MaxInt64 },
		},
		"no CPU shares reported": {
			reported: "cpu=300m/600m memory=48Mi/96Mi", want: "cpu=250m/500m memory=32Mi/64Mi",
			change: func(c *cri.Container) { c.Resources.CPUShares = 0 },
		},
		"no CPU period reported": {
			reported: "cpu=250m/500m memory=32Mi/64Mi", want: "cpu=250m/500m memory=32Mi/64Mi",
			change: func(c *cri.Container) { c.Resources.CPUPeriod, c.Resources.CPUQuota = 0, 0 },
		},
		"no annotation": {reported: createdSize, change: func(c *cri.Container) { c.Annotations = nil }},
		"invalid annotation": {
			reported: createdSize, change: func(c *cri.Container) { c.Annotations[resize.AnnotationResources] = "cpu=all" },
		},
		"memory request equal to limit, limit changed": {
			reported: "cpu=250m/500m memory=96Mi/96Mi", want: "cpu=250m/500m memory=96Mi/96Mi",
			change: func(c *cri.Container) {
				c.Annotations[resize.AnnotationResources] = resize.FormatSize(parseSize("cpu=250m/500m memory=64Mi/64Mi"))
			},
		},
		"memory protection of created size":   {options: protects, reported: createdSize, want: "cpu=250m/500m memory=32Mi/64Mi"},
		"memory protection of requested size": {options: protects, reported: requestedSize},
		"other memory protection": {
			options: protects, reported: "cpu=250m/500m memory=48Mi/64Mi", want: "cpu=250m/500m memory=32Mi/64Mi",
		},
		"other memory protection, requested size equals created size": {
			options: protects, reported: "cpu=250m/500m memory=48Mi/64Mi", requested: createdSize, want: "cpu=250m/500m memory=-1/64Mi",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.options.Node == nil {
				tt.options = v1
			}
			pod := podtest.Pod("a")
			pod.Spec.Containers[0].Resources = requirements(cmp.Or(tt.requested, requestedSize))
			c := newInstance(t, "main", createdSize, running)
			c.Resources = nil
			if tt.reported != "" {
				c.Resources = resources(t, pod, tt.options, tt.reported)
			}
			if tt.change != nil {
				tt.change(&c)
			}
			s := resize.State{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{c}}, Spec: tt.options}
			if tt.sent != "" {
				s.SentSizes = map[string]cgroups.ContainerSize{c.ID: parseSize(tt.sent)}
			}
			got := ""
			if d := resize.Decide(s); len(d.Containers) > 0 {
				got = podtest.FormatSize(d.Containers[0].From)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// The kernel rounds memory limits to pages, up to a maximum.
func TestIsLimit(t *testing.T) {
	for limit, want := range map[int64]bool{1: true, 1 << 40: true, 1 << 62: true, 1<<62 + 1: false, math.MaxInt64: false} {
		assert.Equal(t, want, resize.IsLimit(limit), "%d", limit)
	}
}
