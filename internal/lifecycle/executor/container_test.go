// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// The attempt continues from the logs if the runtime has lost its containers, so that no log is overwritten.
func TestAttemptContinuesAfterNewestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := t.TempDir()
		s := newScene(t, podtest.Pod("a", "main", "side"), setting{node: func(n *executor.Node) { n.Spec.LogRoot = logs }})
		for _, log := range []string{"main/0.log", "main/3.log"} {
			path := filepath.Join(logs, "default_a_uid-a", log)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
		}
		s.startContainers("main", "side")
		s.requireEvents("Created main uid-a-main-4 attempt 4", "Started main uid-a-main-4 attempt 4",
			"Created side uid-a-side-0", "Started side uid-a-side-0")
		c, _ := s.rt.Container("a/main")
		require.Equal(t, filepath.Join(logs, "default_a_uid-a/main/4.log"), c.LogPath)
	})
}

// Labels and annotations of sandbox and container hold the data that a restarted agent needs.
func TestLabelsAndAnnotationsOfSandboxAndContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podtest.Pod("a")
		pod.Spec.HostNetwork = true
		s := newScene(t, pod, setting{})
		a := s.startActions("main")
		a.Start[0].CrashLoop, a.Start[0].Generation = "10s", 2
		require.NoError(t, s.execute(t.Context(), a))
		observed := s.observed()
		sandbox, c := observed.Sandboxes[0], observed.Containers[0]
		assert.Equal(t, "this agent", sandbox.Labels["owner"])
		assert.Equal(t, "node", sandbox.Annotations[podview.AnnotationNetwork])
		assert.Equal(t, a.Sandbox.PodStarted.UTC().Format(time.RFC3339), sandbox.Annotations[podstatus.AnnotationStarted])
		assert.Equal(t, "this agent", c.Labels["owner"])
		assert.Equal(t, "10s", c.Annotations[plan.AnnotationCrashLoop])
		assert.Equal(t, "2", c.Annotations[podview.AnnotationGeneration])
	})
}

// Containers get a hosts file and a termination message file only if the runtime can mount them.
func TestHostsAndMessageFilesMounted(t *testing.T) {
	for _, noMounts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			root := t.TempDir()
			s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) { n.PodRoot, n.NoMounts = root, noMounts }})
			s.startContainers("main")
			c, _ := s.rt.Container("a/main")
			mounts := map[string]string{}
			for _, m := range c.Mounts {
				mounts[m.ContainerPath] = m.HostPath
			}
			if noMounts {
				require.Empty(t, mounts)
				return
			}
			require.Equal(t, map[string]string{
				"/etc/hosts": filepath.Join(root, "uid-a/etc-hosts"), "/dev/termination-log": filepath.Join(root, "uid-a/containers/main/0"),
			}, mounts)
			require.NoError(t, os.WriteFile(mounts["/dev/termination-log"], []byte("goodbye"), 0o600))
			require.Equal(t, "goodbye", s.x.TerminationMessage(t.Context(), &c))
		})
	}
}

// Without cri.Inspector the sandbox IPs come from the list of the runtime.
func TestSandboxIPsFromListWithoutInspector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		s := newScene(t, podtest.Pod("a"), setting{node: func(n *executor.Node) { n.PodRoot = root }})
		s.node.Runtime = struct{ cri.Runtime }{s.rt}
		s.createExecutor()
		s.startContainers("main")
		hosts, err := os.ReadFile(filepath.Join(root, "uid-a/etc-hosts"))
		require.NoError(t, err)
		require.Contains(t, string(hosts), s.observed().Sandboxes[0].IPs[0]+"\ta\n")
	})
}

// Waiting reasons set by the worker stay until the next start.
func TestWaitingReasonsKeptUntilStart(t *testing.T) {
	var w executor.WaitingReasons
	require.Empty(t, w.Get())
	w.SetReason("main", podstatus.Waiting{Reason: "ImagePullBackOff", Message: "later"})
	got := w.Get()
	require.Equal(t, map[string]podstatus.Waiting{"main": {Reason: "ImagePullBackOff", Message: "later"}}, got)
	got["other"] = podstatus.Waiting{}
	require.Len(t, w.Get(), 1, "Get returns a copy")
	w.Replace(nil)
	require.Empty(t, w.Get())
	w.SetReason("main", podstatus.Waiting{Reason: "CrashLoopBackOff"})
	require.Len(t, w.Get(), 1)
}

// The image of the container and the images of its image volumes are ensured separately.
func TestImagesOfImageVolumesEnsured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		pod := podtest.Pod("a", "main", "side")
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1", PullPolicy: corev1.PullAlways}}},
			{Name: "other", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "other:1"}}},
		}
		main := containers.Named(&pod.Spec, "main")
		main.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		s := newScene(t, pod, setting{node: func(n *executor.Node) {
			n.Images = imageFunc(func(_ context.Context, c *corev1.Container) (cri.Image, error) {
				asked = append(asked, c.Name+" "+c.Image+" "+string(c.ImagePullPolicy))
				return cri.Image{ID: "sha256:" + c.Image}, nil
			})
		}})
		s.startContainers("main", "side")
		require.Equal(t, []string{"main busybox Always", "main data:1 Always", "side busybox Always"}, asked)
		c, _ := s.rt.Container("a/main")
		require.Equal(t, "sha256:data:1", c.Mounts[0].Image.Image)
	})
}
