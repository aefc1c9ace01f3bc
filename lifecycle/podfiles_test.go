// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// An image volume is pulled before the containers that mount it, and does not delay other containers.
func TestImageVolumePulledBeforeContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var there sync.Map
		pull := func(_ context.Context, s cri.ImageSpec, _ *cri.Auth) (cri.Image, error) {
			if _, ok := there.Load("yes"); !ok && strings.Contains(s.Image, "data") {
				return cri.Image{}, errors.New("registry says no")
			}
			return cri.Image{ID: "sha256:" + path.Base(s.Image), RepoTags: []string{s.Image}}, nil
		}
		rt := critest.New(critest.Options{Images: []cri.Image{}, Pull: pull})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a", "main", "reader")
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: "registry.test/data:1"},
		}}}
		pod.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "public"}}
		n.set(pod)
		time.Sleep(5 * time.Second)
		n.requireStatus("a", "Pending, main: ready, reader: ImagePullBackOff")
		there.Store("yes", true)
		time.Sleep(20 * time.Second)
		n.requireStatus("a", "Running, main: ready, reader: ready")
		c, ok := rt.Container("a/reader")
		require.True(t, ok)
		require.Len(t, c.Mounts, 1)
		assert.Equal(t, "/data", c.Mounts[0].ContainerPath)
		assert.Equal(t, "sha256:data:1", c.Mounts[0].Image.Image)
		assert.Equal(t, "public", c.Mounts[0].ImageSubPath)
		assert.True(t, c.Mounts[0].ReadOnly)
	})
}

// The termination message of a container is the content of its file, truncated to the last 4 KiB and to 12 KiB for all containers
// of a pod. Each container has the hosts file, and all files are removed with the pod.
func TestTerminationMessagesAndHostsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Minute, 1)})})
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}})
		pod := podtest.Pod("a", "main", "b", "c", "d")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"nine"}}}
		n.set(pod)
		time.Sleep(time.Second)
		c, ok := rt.Container("a/main")
		require.True(t, ok)
		mounts := map[string]string{}
		for _, m := range c.Mounts {
			mounts[m.ContainerPath] = m.HostPath
		}
		hosts, err := os.ReadFile(mounts["/etc/hosts"])
		require.NoError(t, err)
		assert.Contains(t, string(hosts), "192.0.2.9\tnine\n")
		words := mounts["/dev/termination-log"]
		require.NoError(t, os.WriteFile(words, []byte(strings.Repeat("x", 5000)+"the end"), 0o600))
		time.Sleep(2 * time.Minute)
		message := n.status("a").ContainerStatuses[3].State.Terminated.Message
		assert.Len(t, message, 12*1024/4, "four containers share 12 KiB")
		assert.True(t, strings.HasPrefix(message, "xxx"))

		require.DirExists(t, filepath.Dir(words))
		n.set()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a"}, n.removedPods())
		assert.Empty(t, podDirs(t, root))
	})
}

// Set refuses a field that needs an option which is not set.
func TestSetRefusesFieldsWithoutOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		own := false
		for want, change := range map[string]func(*corev1.Pod){
			"spec.hostAliases": func(p *corev1.Pod) {
				p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"nine"}}}
			},
			"spec.hostUsers": func(p *corev1.Pod) { p.Spec.HostUsers = &own },
			"spec.securityContext.sysctls[0]": func(p *corev1.Pod) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "vm.swappiness", Value: "1"}}}
			},
		} {
			pod := podtest.Pod("a")
			change(pod)
			podapi.Default(pod)
			err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{pod}})
			require.ErrorContains(t, err, "default/a")
			require.ErrorContains(t, err, want)
		}
	})
}
