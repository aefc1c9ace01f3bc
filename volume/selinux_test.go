// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// labelPlugin is a plugin that mounts with labels, unless cannot is set, and records the labels.
type labelPlugin struct {
	*volumetest.MemoryStager
	unsupported bool
	supportErr  error
	labels      []string
}

func (p *labelPlugin) MountsWithLabel(_ context.Context, v volume.Volume) (bool, error) {
	if v.PV == nil {
		return false, errors.New("a volume without a PV")
	}
	return !p.unsupported, p.supportErr
}

func (p *labelPlugin) Stage(ctx context.Context, v volume.Volume) error {
	p.labels = append(p.labels, fmt.Sprintf("stage %s %q", v.SpecName, v.SELinuxLabel))
	return p.MemoryStager.Stage(ctx, v)
}

func (p *labelPlugin) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	p.labels = append(p.labels, fmt.Sprintf("set up %s %q", v.UID, v.SELinuxLabel))
	return p.MemoryStager.SetUp(ctx, v)
}

// enforcingNode is a node with SELinux.
var enforcingNode = volume.SELinux{Enabled: true, FileLabel: "system_u:object_r:container_file_t:s0"}

// podWithLevels returns a pod that mounts a claim in one container per level; an empty level means no SELinux options.
func podWithLevels(uid, claim string, levels ...string) *corev1.Pod {
	p := podWithClaims(uid, claim)
	c := p.Spec.Containers[0]
	p.Spec.Containers = nil
	for i, level := range levels {
		c := *c.DeepCopy()
		c.Name = fmt.Sprint("c", i)
		if level != "" {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: level}}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// A restarted agent keeps the recorded label. A pod with another label waits until no pod uses the volume.
func TestVolumeMountedWithOneSELinuxLabelAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, s := t.TempDir(), newStorage()
		p := &labelPlugin{MemoryStager: s.MemoryStager}
		o := s.optionsWith(root, p)
		o.SELinux = enforcingNode
		a := startAgent(t, o)
		const label = "system_u:object_r:container_file_t:s0:c1,c2"
		require.NoError(t, a.Prepare(t.Context(), podWithLevels("u1", "db", "s0:c1,c2")))
		require.NoError(t, a.Prepare(t.Context(), podWithLevels("u2", "db", "s0:c1,c2", "", "s0:c1,c2")), "a container without SELinux options has no conflict")
		for _, other := range []*corev1.Pod{podWithLevels("u3", "db", "s0:c3"), podWithLevels("u3", "db", "")} {
			require.ErrorContains(t, a.Prepare(t.Context(), other), `conflicting SELinux labels of volume pv1: "`+label+`" and "`)
		}
		require.NoError(t, a.Prepare(t.Context(), podWithLevels("u4", "logs", "s0:c3")), "another volume has its own label")
		a.stop()

		p.unsupported = true
		a = startAgent(t, o)
		require.NoError(t, a.Prepare(t.Context(), podWithLevels("u1", "db", "s0:c1,c2")))
		assert.Equal(t, []string{
			fmt.Sprintf("stage pv1 %q", label), fmt.Sprintf("set up u1 %q", label), fmt.Sprintf("set up u2 %q", label),
			`stage pv2 "system_u:object_r:container_file_t:s0:c3"`, `set up u4 "system_u:object_r:container_file_t:s0:c3"`,
			fmt.Sprintf("stage pv1 %q", label), fmt.Sprintf("set up u1 %q", label),
		}, p.labels)
		p.unsupported, p.labels = false, nil
		require.NoError(t, a.Release(t.Context(), "u1"))
		require.Error(t, a.Prepare(t.Context(), podWithLevels("u3", "db", "s0:c3")))
		var notified []string
		a.Notify(func(uids ...string) { notified = append(notified, uids...) })
		require.NoError(t, a.Release(t.Context(), "u2"))
		assert.Equal(t, []string{"u3"}, notified, "the waiting pod is notified when the volume is unused")
		require.NoError(t, a.Prepare(t.Context(), podWithLevels("u3", "db", "s0:c3")))
		assert.Equal(t, `stage pv1 "system_u:object_r:container_file_t:s0:c3"`, p.labels[0])
		require.NoError(t, a.Release(t.Context(), "u3"))
		require.NoError(t, a.Release(t.Context(), "u4"))
		s.checkNothingLeft(t, root)
	})
}

func TestVolumeMountedWithoutSELinuxLabel(t *testing.T) {
	recursive := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxChangePolicy: new(corev1.SELinuxChangePolicyRecursive)}
		return p
	}
	for name, c := range map[string]struct {
		node   volume.SELinux
		plugin labelPlugin
		pod    *corev1.Pod
		err    string
	}{
		"SELinux not enabled":            {volume.SELinux{}, labelPlugin{}, podWithLevels("u1", "db", "s0:c1", "s0:c2"), ""},
		"no level":                       {enforcingNode, labelPlugin{}, podWithLevels("u1", "db", ""), ""},
		"recursive change policy":        {enforcingNode, labelPlugin{}, recursive(podWithLevels("u1", "db", "s0:c1")), ""},
		"plugin cannot mount with label": {enforcingNode, labelPlugin{unsupported: true}, podWithLevels("u1", "db", "s0:c1"), ""},
		"label support unknown":          {enforcingNode, labelPlugin{supportErr: errors.New("no CSIDriver")}, podWithLevels("u1", "db", "s0:c1"), "no CSIDriver"},
		"several levels":                 {enforcingNode, labelPlugin{unsupported: true}, podWithLevels("u1", "db", "s0:c1", "s0:c2"), "multiple SELinux labels found: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				root, s := t.TempDir(), newStorage()
				c.plugin.MemoryStager = s.MemoryStager
				o := s.optionsWith(root, &c.plugin)
				o.SELinux, o.WaitTimeout = c.node, time.Second
				a := startAgent(t, o)
				err := a.Prepare(t.Context(), c.pod)
				if c.err != "" {
					require.ErrorContains(t, err, c.err)
					assert.Empty(t, c.plugin.labels)
					return
				}
				require.NoError(t, err)
				assert.Equal(t, []string{`stage pv1 ""`, `set up u1 ""`}, c.plugin.labels)
				require.NoError(t, a.Release(t.Context(), "u1"))
				s.checkNothingLeft(t, root)
			})
		})
	}
}
