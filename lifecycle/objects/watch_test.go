// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
)

// watchRecorder records the notifications of a watch until stop is called.
type watchRecorder struct {
	notifications chan string
	done          chan error
	stop          func()
}

func startWatch(t *testing.T, run func(ctx context.Context, changed func(kind, namespace, name string)) error) *watchRecorder {
	t.Helper()
	w := &watchRecorder{notifications: make(chan string, 1000), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() {
		w.done <- run(ctx, func(kind, namespace, name string) { w.notifications <- kind + " " + namespace + " " + name })
	}()
	return w
}

// await waits for a notification. Other notifications may precede it.
func (w *watchRecorder) await(t *testing.T, want string) {
	t.Helper()
	for {
		select {
		case got := <-w.notifications:
			if got == want {
				return
			}
		case <-t.Context().Done():
			t.Fatal(want)
		}
	}
}

func TestWatchDirReportsChangedObjects(t *testing.T) {
	root := t.TempDir()
	write := func(path string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		temp := filepath.Join(filepath.Dir(path), ".new")
		require.NoError(t, os.WriteFile(temp, []byte("{}"), 0o600))
		require.NoError(t, os.Rename(temp, path))
	}
	write("default/configmaps/app.yaml")
	w := startWatch(t, objects.NewDir(root).Watch)
	w.await(t, "  ")
	write("default/configmaps/app.yaml")
	w.await(t, "ConfigMap default app")
	require.NoError(t, os.Remove(filepath.Join(root, "default/configmaps/app.yaml")))
	w.await(t, "ConfigMap default app")

	write("default/secrets/key.yaml") // in a new directory
	w.await(t, " default ")
	write("default/secrets/key.yaml")
	w.await(t, "Secret default key")
	write("other/services/web.yaml")
	w.await(t, " other ")
	for got := ""; got != "Service other web"; { // the namespace may be reported before its directories are watched
		write("other/services/web.yaml")
		got = <-w.notifications
	}
	require.NoError(t, os.RemoveAll(filepath.Join(root, "default")))
	w.await(t, " default ")
	w.stop()
	require.NoError(t, <-w.done)
}

// A directory that is removed or missing ends the watch with an error; the caller starts another watch.
func TestWatchFailsWhenDirIsReplaced(t *testing.T) {
	root := filepath.Join(t.TempDir(), "objects")
	w := startWatch(t, objects.NewDir(root).Watch)
	require.ErrorIs(t, <-w.done, os.ErrNotExist)

	require.NoError(t, os.Mkdir(root, 0o755))
	w = startWatch(t, objects.NewDir(root).Watch)
	w.await(t, "  ")
	require.NoError(t, os.Remove(root))
	require.ErrorContains(t, <-w.done, "removed or renamed")
}

func TestWatchMemoryReportsPutAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m objects.Memory
		w := startWatch(t, m.Watch)
		synctest.Wait()
		meta := metav1.ObjectMeta{Namespace: "default", Name: "app"}
		require.NoError(t, m.PutConfigMap(&corev1.ConfigMap{ObjectMeta: meta}))
		require.NoError(t, m.PutSecret(&corev1.Secret{ObjectMeta: meta}))
		require.NoError(t, m.PutService(&corev1.Service{ObjectMeta: meta}))
		m.DeleteConfigMap("default", "app")
		m.DeleteSecret("default", "app")
		m.DeleteService("default", "app")
		for _, want := range []string{"ConfigMap", "Secret", "Service", "ConfigMap", "Secret", "Service"} {
			assert.Equal(t, want+" default app", <-w.notifications)
		}
		w.stop()
		require.NoError(t, <-w.done)
		require.NoError(t, m.PutConfigMap(&corev1.ConfigMap{ObjectMeta: meta}))
		assert.Empty(t, w.notifications)
	})
}
