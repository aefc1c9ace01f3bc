// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

func TestMain(m *testing.M) { mounttest.Main(m) }

// node has the plugins, objects and one volume.
type node struct {
	t       *testing.T
	objects *objects.Memory
	options intree.Options
	plugins map[string]volume.Plugin
	root    string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, objects: &objects.Memory{}, root: t.TempDir()}
	n.putConfigMap("app", map[string]string{"a": "1", "b": "2"})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"}, Data: map[string][]byte{"tls.key": []byte("s3cret")}}
	require.NoError(t, n.objects.PutSecret(secret))
	n.options = intree.Options{
		Objects: n.objects,
		Tokens: volume.TokenIssuerFunc(func(_ context.Context, r volume.TokenRequest) (volume.Token, error) {
			return volume.Token{Value: "token of " + r.ServiceAccount + " for " + r.Pod, Expires: time.Now().Add(time.Hour)}, nil
		}),
	}
	n.plugins = intree.Plugins(n.options)
	return n
}

func (n *node) putConfigMap(name string, data map[string]string) {
	n.t.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
	require.NoError(n.t, n.objects.PutConfigMap(o))
}

// newVolume returns the first volume of a pod as passed to its plugin, and creates its parent directories.
func (n *node) newVolume(plugin string, pod *corev1.Pod) volume.Volume {
	n.t.Helper()
	v := volume.Volume{
		Pod: pod, Source: &pod.Spec.Volumes[0], UID: string(pod.UID), Name: pod.Spec.Volumes[0].Name, Plugin: plugin,
		PodDir: filepath.Join(n.root, string(pod.UID)), Warn: func(string, string) {},
	}
	v.Dir = filepath.Join(v.PodDir, "volumes", strings.ReplaceAll(plugin, "/", "~"), v.Name)
	require.NoError(n.t, os.MkdirAll(filepath.Dir(v.Dir), 0o750))
	return v
}

func (n *node) setUp(v volume.Volume) volume.Mount {
	n.t.Helper()
	m, err := n.plugins[v.Plugin].SetUp(n.t.Context(), v)
	require.NoError(n.t, err)
	return m
}

func (n *node) tearDown(v volume.Volume) {
	n.t.Helper()
	require.NoError(n.t, n.plugins[v.Plugin].TearDown(n.t.Context(), v))
	require.NoDirExists(n.t, v.Dir)
}

// readFile returns the contents of a file in a volume.
func (n *node) readFile(m volume.Mount, name string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(m.HostPath, name))
	require.NoError(n.t, err)
	return string(data)
}

// volumeKinds are the volumes with which the suite runs.
var volumeKinds = map[string]struct{ plugin, spec string }{
	"emptyDir":           {volume.EmptyDir, "emptyDir: {}"},
	"emptyDir in memory": {volume.EmptyDir, "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
	"configMap":          {volume.ConfigMap, "configMap: {name: app}"},
	"secret":             {volume.Secret, "secret: {secretName: key}"},
	"downwardAPI":        {volume.DownwardAPI, "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}"},
	"projected":          {volume.Projected, "projected: {sources: [{configMap: {name: app}}, {secret: {name: key}}, {serviceAccountToken: {path: token}}]}"},
}

func TestPluginsPassSuite(t *testing.T) {
	mounttest.Need(t)
	for name, k := range volumeKinds {
		t.Run(name, func(t *testing.T) {
			volumetest.TestPlugin(t, func(t *testing.T) volumetest.Subject {
				return volumetest.Subject{
					Plugin: newNode(t).plugins[k.plugin], Name: k.plugin,
					Pod: podtest.Pod(t, "{securityContext: {fsGroup: 1234}, volumes: [{name: v, "+k.spec+"}]}"),
				}
			})
		})
	}
	t.Run("hostPath", func(t *testing.T) {
		volumetest.TestPlugin(t, func(t *testing.T) volumetest.Subject {
			return volumetest.Subject{
				Plugin: newNode(t).plugins[volume.HostPath], Name: volume.HostPath, Outside: true,
				Pod: podtest.Pod(t, "volumes: [{name: v, hostPath: {path: "+t.TempDir()+", type: Directory}}]"),
			}
		})
	})
}
