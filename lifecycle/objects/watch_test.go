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

// watch records the notifications until stop is called.
type watch struct {
	told chan string
	done chan error
	stop func()
}

func start(t *testing.T, run func(ctx context.Context, changed func(kind, namespace, name string)) error) *watch {
	t.Helper()
	w := &watch{told: make(chan string, 1000), done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go func() {
		w.done <- run(ctx, func(kind, namespace, name string) { w.told <- kind + " " + namespace + " " + name })
	}()
	return w
}

// until waits for a notification. Other notifications may precede it.
func (w *watch) until(t *testing.T, want string) {
	t.Helper()
	for {
		select {
		case got := <-w.told:
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
	w := start(t, objects.NewDir(root).Watch)
	w.until(t, "  ")
	write("default/configmaps/app.yaml")
	w.until(t, "ConfigMap default app")
	require.NoError(t, os.Remove(filepath.Join(root, "default/configmaps/app.yaml")))
	w.until(t, "ConfigMap default app")

	write("default/secrets/key.yaml") // in a new directory
	w.until(t, " default ")
	write("default/secrets/key.yaml")
	w.until(t, "Secret default key")
	write("other/services/web.yaml")
	w.until(t, " other ")
	for told := ""; told != "Service other web"; { // the namespace may be reported before its directories are watched
		write("other/services/web.yaml")
		told = <-w.told
	}
	require.NoError(t, os.RemoveAll(filepath.Join(root, "default")))
	w.until(t, " default ")
	w.stop()
	require.NoError(t, <-w.done)
}

// A directory that is removed or missing ends the watch with an error; the caller starts another watch.
func TestWatchFailsWhenDirIsReplaced(t *testing.T) {
	root := filepath.Join(t.TempDir(), "objects")
	w := start(t, objects.NewDir(root).Watch)
	require.ErrorIs(t, <-w.done, os.ErrNotExist)

	require.NoError(t, os.Mkdir(root, 0o755))
	w = start(t, objects.NewDir(root).Watch)
	w.until(t, "  ")
	require.NoError(t, os.Remove(root))
	require.ErrorContains(t, <-w.done, "removed or renamed")
}

func TestWatchMemoryReportsPutAndDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m objects.Memory
		w := start(t, m.Watch)
		synctest.Wait()
		meta := metav1.ObjectMeta{Namespace: "default", Name: "app"}
		require.NoError(t, m.PutConfigMap(&corev1.ConfigMap{ObjectMeta: meta}))
		require.NoError(t, m.PutSecret(&corev1.Secret{ObjectMeta: meta}))
		require.NoError(t, m.PutService(&corev1.Service{ObjectMeta: meta}))
		m.DeleteConfigMap("default", "app")
		m.DeleteSecret("default", "app")
		m.DeleteService("default", "app")
		for _, want := range []string{"ConfigMap", "Secret", "Service", "ConfigMap", "Secret", "Service"} {
			assert.Equal(t, want+" default app", <-w.told)
		}
		w.stop()
		require.NoError(t, <-w.done)
		require.NoError(t, m.PutConfigMap(&corev1.ConfigMap{ObjectMeta: meta}))
		assert.Empty(t, w.told)
	})
}
