// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletstate_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/lifecycle/kubeletstate"
)

// newPod returns a pod with a container that requests this CPU.
func newPod(uid, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
	}}}}
}

// node is a root directory with the directories of two pods.
type node struct {
	t   *testing.T
	dir string
	log bytes.Buffer
}

func newNode(t *testing.T) *node {
	n := &node{t: t, dir: t.TempDir()}
	for _, uid := range []string{"uid-a", "uid-b"} {
		require.NoError(t, os.MkdirAll(filepath.Join(n.dir, "pods", uid), 0o700))
	}
	return n
}

func (n *node) open() *kubeletstate.Store {
	return kubeletstate.Open(n.dir, filepath.Join(n.dir, "pods"), slog.New(slog.NewTextHandler(&n.log, nil)))
}

// run runs a store until the returned function is called.
func (n *node) run(s *kubeletstate.Store) (stop func()) {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan bool)
	go func() { s.Run(ctx); close(done) }()
	return func() { cancel(); <-done }
}

func requireCPU(t *testing.T, want string, s *kubeletstate.Store, uid string) {
	t.Helper()
	pod := s.Allocation(uid).Apply(newPod(uid, "1"))
	require.Equal(t, want, pod.Spec.Containers[0].Resources.Requests.Cpu().String())
}

func TestEntriesSurviveRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := n.open()
		stop := n.run(s)
		require.Nil(t, s.Allocation("uid-a"))
		s.Set(newPod("uid-a", "200m"), newPod("uid-a", "100m"))
		s.Set(newPod("uid-b", "300m"), nil)
		s.Set(newPod("uid-gone", "1"), nil)
		stop()

		s = n.open()
		requireCPU(t, "200m", s, "uid-a")
		actuated := s.Actuated("uid-a").Apply(newPod("uid-a", "1"))
		require.Equal(t, "100m", actuated.Spec.Containers[0].Resources.Requests.Cpu().String())
		requireCPU(t, "300m", s, "uid-b")
		require.Nil(t, s.Actuated("uid-b"), "the containers have the allocated resources")
		require.Nil(t, s.Allocation("uid-gone"), "the pod has no directory")
		stop = n.run(s)
		s.Remove("uid-b")
		time.Sleep(time.Second)
		require.NotContains(t, n.read(kubeletstate.AllocatedName), "uid-b")
		require.Contains(t, n.read(kubeletstate.AllocatedName), "uid-a", "a pod that is not set yet")
		stop()
		require.Empty(t, n.log.String())
	})
}

func (n *node) read(name string) string {
	content, err := os.ReadFile(filepath.Join(n.dir, name))
	require.NoError(n.t, err)
	return string(content)
}

// The file is that of the kubelet's package allocation/state; see also TestKubeletState in conformance.
func TestFileOfKubelet(t *testing.T) {
	n := newNode(t)
	const file = `{"data":"{\"entries\":{\"uid-a\":{\"ContainerResources\":{\"main\":{\"requests\":{\"cpu\":\"200m\"}}},\"PodLevelResources\":null,\"EmptyDirVolumeLimits\":null}}}","checksum":2356467993}`
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, kubeletstate.AllocatedName), []byte(file), 0o600))
	requireCPU(t, "200m", n.open(), "uid-a")
	require.Empty(t, n.log.String())
}

// A kubelet does not start with a damaged file, so that it is replaced even without a change.
func TestDamagedFileReplaced(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON": "x", "checksum": `{"data":"{}","checksum":1}`, "empty": "", "data": `{"data":"x","checksum":3000889323}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				require.NoError(t, os.WriteFile(filepath.Join(n.dir, kubeletstate.AllocatedName), []byte(content), 0o600))
				s := n.open()
				require.Contains(t, n.log.String(), "resources of pods that a kubelet has resized are lost")
				n.log.Reset()
				n.run(s)()
				n.open()
				require.Empty(t, n.log.String())
			})
		})
	}
}

// Many changes cause few writes, and a failed write is repeated.
func TestWritesPacedAndRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := n.open()
		obstacle := filepath.Join(n.dir, kubeletstate.ActuatedName)
		require.NoError(t, os.Mkdir(obstacle, 0o700))
		defer n.run(s)()
		s.Set(newPod("uid-a", "200m"), nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait() // orders the writes of the log for the race detector
		require.Contains(t, n.log.String(), "it is no regular file")
		require.Less(t, bytes.Count(n.log.Bytes(), []byte("level=ERROR")), 20)
		require.NoError(t, os.Remove(obstacle))
		time.Sleep(2 * time.Minute)
		require.Contains(t, n.read(kubeletstate.ActuatedName), "200m")
	})
}

func TestNilStoreHasNoEntries(t *testing.T) {
	var s *kubeletstate.Store
	s.Set(newPod("uid-a", "1"), nil)
	s.Remove("uid-a")
	s.Run(t.Context())
	require.Nil(t, s.Allocation("uid-a"))
	require.Nil(t, s.Actuated("uid-a"))
}

// Any content is read or reported without a panic.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"data":"{\"entries\":{\"uid-a\":{}}}","checksum":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		n := newNode(t)
		require.NoError(t, os.WriteFile(filepath.Join(n.dir, kubeletstate.AllocatedName), content, 0o600))
		_ = n.open().Allocation("uid-a")
	})
}
