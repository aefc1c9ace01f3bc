// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// timeout is the maximum wait for an event that normally is immediate.
const timeout = time.Minute

// cluster has the API objects of a test, by name.
type cluster struct {
	drivers     map[string]*storagev1.CSIDriver
	secrets     map[string]*corev1.Secret
	attachments map[string]*storagev1.VolumeAttachment
}

func find[T any](m map[string]*T, name string) (*T, error) {
	if o := m[name]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

func (c *cluster) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return find(c.drivers, name)
}

func (c *cluster) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return find(c.secrets, namespace+"/"+name)
}

func (c *cluster) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return find(c.attachments, name)
}

// env is a plugin with a fake driver.
type env struct {
	t       *testing.T
	root    string
	driver  *csitest.Driver
	plugin  *csi.Plugin
	claims  volumetest.Claims
	refresh time.Duration // refresh interval of the engine
	stop    func()
}

// newEnv starts a driver and a plugin with the options d and o, and waits until the driver is registered. It sets Registry and
// NodeName.
func newEnv(t *testing.T, d csitest.Options, o csi.Options) *env {
	t.Helper()
	e := &env{t: t, root: t.TempDir()}
	o.Registry, o.NodeName = filepath.Join(e.root, "plugins_registry"), "n1"
	require.NoError(t, os.Mkdir(o.Registry, 0o750))
	d.Registry = o.Registry
	e.driver = csitest.Start(t, d)
	e.startPlugin(o)
	e.awaitDriver()
	return e
}

// startPlugin starts a plugin with the options o. A second call replaces the plugin, like a restart of the agent.
func (e *env) startPlugin(o csi.Options) {
	e.t.Helper()
	if e.stop != nil {
		e.stop()
	}
	p, err := csi.New(o)
	require.NoError(e.t, err)
	ctx, cancel := context.WithCancel(e.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(e.t, p.Run(ctx)) })
	e.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	e.t.Cleanup(e.stop)
	e.plugin = p
}

// awaitDriver waits until the driver is registered, and clears its calls.
func (e *env) awaitDriver() {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return slices.Contains(e.driver.RegistrationResults(), "registered") }, timeout, time.Millisecond)
	require.Equal(e.t, []string{"csi.example"}, e.plugin.Drivers())
	require.Equal(e.t, []string{"NodeGetInfo"}, e.driver.Methods())
	e.driver.ClearCalls()
}

// newPod returns a pod with an fsGroup.
func newPod() *corev1.Pod {
	group := int64(4321)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"},
		Spec:       corev1.PodSpec{ServiceAccountName: "app", SecurityContext: &corev1.PodSecurityContext{FSGroup: &group}},
	}
}

// newInlineVolume returns an inline volume of a pod.
func (e *env) newInlineVolume(attributes map[string]string) volume.Volume {
	p := newPod()
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{
		Driver: "csi.example", VolumeAttributes: attributes,
	}}}}
	return e.newVolume(p, "data")
}

// newVolume returns the first volume of p as package volume passes it to the plugin. spec is its name on disk.
func (e *env) newVolume(p *corev1.Pod, spec string) volume.Volume {
	e.t.Helper()
	dir := filepath.Join(e.root, "pods", string(p.UID))
	v := volume.Volume{
		Pod: p, Source: &p.Spec.Volumes[0], UID: string(p.UID), Name: p.Spec.Volumes[0].Name, SpecName: spec, Plugin: volume.CSI, PodDir: dir,
		Dir: filepath.Join(dir, "volumes/kubernetes.io~csi", spec), PluginDir: filepath.Join(e.root, "plugins"), Warn: func(string, string) {},
	}
	require.NoError(e.t, os.MkdirAll(filepath.Dir(v.Dir), 0o750))
	return v
}

// newPersistentVolume returns a volume with a claim, and its device.
func (e *env) newPersistentVolume(block bool) volume.Volume {
	e.t.Helper()
	p := newPod()
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
	}}}
	v := e.newVolume(p, "pv1")
	v.Block = block
	v.PV = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv1"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "csi.example", VolumeHandle: "handle1", FSType: "ext4", VolumeAttributes: map[string]string{"size": "1"},
			}},
		},
	}
	return e.withDevice(v)
}

// withDevice sets the device of a volume.
func (e *env) withDevice(v volume.Volume) volume.Volume {
	e.t.Helper()
	d, err := e.plugin.Device(e.t.Context(), v)
	require.NoError(e.t, err)
	v.Device, v.StagingDir = d, filepath.Join(v.PluginDir, d.Dir)
	return v
}

// asRecorded returns v with only the fields that a restarted agent reads from its record.
func asRecorded(v volume.Volume) volume.Volume {
	v.Pod, v.Source, v.Claim, v.PV, v.Recovered = nil, nil, nil, nil, true
	return v
}

// listFiles returns the files and directories below the directories of pods and plugins.
func (e *env) listFiles() []string {
	e.t.Helper()
	found := []string{}
	for _, dir := range []string{"pods", "plugins"} {
		err := filepath.WalkDir(filepath.Join(e.root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == filepath.Join(e.root, dir) || d.Name() == ".volumes.lock" {
				return nil
			}
			rel, _ := filepath.Rel(e.root, path)
			if d.IsDir() {
				entries, _ := os.ReadDir(path)
				if len(entries) > 0 {
					return nil
				}
				rel += "/"
			}
			found = append(found, rel)
			return nil
		})
		require.NoError(e.t, err)
	}
	return found
}

// readVolData returns the contents of vol_data.json in a directory.
func readVolData(t *testing.T, dir string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
	require.NoError(t, err)
	m := map[string]string{}
	require.NoError(t, json.Unmarshal(text, &m))
	return m
}

func driverObject(change func(s *storagev1.CSIDriverSpec)) *cluster {
	d := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example"}}
	d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}
	if change != nil {
		change(&d.Spec)
	}
	return &cluster{drivers: map[string]*storagev1.CSIDriver{"csi.example": d}}
}
