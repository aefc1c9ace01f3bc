// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// relabeledVolumes provides volumes with SELinuxRelabel.
type relabeledVolumes struct{ *lifecycletest.Resources }

func (l relabeledVolumes) Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, launch *podspec.Launch) error {
	err := l.Resources.Container(ctx, pod, c, launch)
	for name, v := range launch.Volumes {
		v.SELinuxRelabel = true
		launch.Volumes[name] = v
	}
	return err
}

// A volume is relabeled for the first created container that mounts it without subPath, once per label.
func TestVolumesRelabeledOncePerLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podtest.Pod("a", "broken", "one", "two", "other", "last")
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
			if c.Name == "other" {
				c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1"}}
			}
		}
		var relabeled []string
		s := newScene(t, pod, setting{
			node: func(n *executor.Node) {
				n.Volumes = relabeledVolumes{&lifecycletest.Resources{}}
				n.Spec.SELinux = true
				n.Runtime = &critest.Faults{Runtime: n.Runtime, CreateContainerFunc: func(ctx context.Context, next cri.Runtime, id string, c *cri.ContainerConfig, sb *cri.SandboxConfig) (string, error) {
					for _, m := range c.Mounts {
						if m.ContainerPath == "/v" && m.SELinuxRelabel {
							relabeled = append(relabeled, c.Name)
						}
					}
					if c.Name == "broken" {
						return "", errors.New("no such user")
					}
					return next.CreateContainer(ctx, id, c, sb)
				}}
			},
		})
		names := []string{"broken", "one", "two", "other", "last"}
		require.ErrorContains(t, s.execute(t.Context(), s.startActions(names...)), "no such user")
		require.Equal(t, []string{"broken", "one", "other"}, relabeled)

		relabeled = nil
		for _, id := range []string{"a/one", "a/other"} {
			require.NoError(t, s.rt.Kill(id, 1))
		}
		time.Sleep(time.Second)
		again := s.startActions("one", "other")
		observed := s.observed()
		again.Sandbox, again.SandboxID = nil, observed.NewestSandbox().ID
		for i := range again.Start {
			again.Start[i].Attempt = 1
		}
		require.NoError(t, s.execute(t.Context(), again))
		require.Empty(t, relabeled)

		require.NoError(t, s.x.Cleaner.ReleaseResources(t.Context()))
		for i := range again.Start {
			again.Start[i].Attempt = 2
		}
		require.NoError(t, s.execute(t.Context(), again))
		require.Equal(t, []string{"one", "other"}, relabeled, "after a release the volumes are new")
	})
}
