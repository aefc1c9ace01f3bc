// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/mounttest"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
)

func TestConfigMapVolumeUpdated(t *testing.T) {
	n := newNode(t)
	v := n.newVolume(volume.ConfigMap, podtest.Pod(t, "volumes: [{name: v, configMap: {name: app}}]"))
	m := n.setUp(v)
	assert.Equal(t, volume.Mount{HostPath: v.Dir, ReadOnly: true, SELinuxRelabel: true}, m)
	assert.Equal(t, "1", n.readFile(m, "a"))
	current, err := os.Readlink(filepath.Join(v.Dir, "..data"))
	require.NoError(t, err)

	n.setUp(v)
	same, err := os.Readlink(filepath.Join(v.Dir, "..data"))
	require.NoError(t, err)
	assert.Equal(t, current, same, "unchanged contents are not written again")

	n.putConfigMap("app", map[string]string{"a": "3"})
	n.setUp(v)
	assert.Equal(t, "3", n.readFile(m, "a"))
	require.NoFileExists(t, filepath.Join(v.Dir, "b"))
	n.tearDown(v)
}

// The config map of the volume was deleted.
func TestFailedUpdateKeepsFiles(t *testing.T) {
	n := newNode(t)
	v := n.newVolume(volume.ConfigMap, podtest.Pod(t, "volumes: [{name: v, configMap: {name: app}}]"))
	m := n.setUp(v)
	n.objects.DeleteConfigMap("default", "app")
	_, err := n.plugins[volume.ConfigMap].SetUp(t.Context(), v)
	require.EqualError(t, err, `configmap "app" not found`)
	assert.Equal(t, "1", n.readFile(m, "a"))
	_, final := errors.AsType[*volume.FinalError](err)
	assert.False(t, final, "not final: the files of the last update exist")
	n.tearDown(v)

	_, err = n.plugins[volume.ConfigMap].SetUp(t.Context(), v)
	require.EqualError(t, err, `configmap "app" not found`)
	_, final = errors.AsType[*volume.FinalError](err)
	assert.True(t, final, "final: SetUp has created nothing")
	require.NoDirExists(t, v.Dir)
}

func TestOnlyConfigMapsAreOnDisk(t *testing.T) {
	mounttest.Need(t)
	for name, k := range volumeKinds {
		if k.plugin == volume.EmptyDir {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			v := n.newVolume(k.plugin, podtest.Pod(t, "volumes: [{name: v, "+k.spec+"}]"))
			n.setUp(v)
			kind, _ := statFileSystem(t, v.Dir)
			disk, _ := statFileSystem(t, n.root)
			if k.plugin == volume.ConfigMap {
				assert.Equal(t, disk, kind)
			} else {
				assert.EqualValues(t, unix.TMPFS_MAGIC, kind)
				n.setUp(v)
				require.NoError(t, unix.Unmount(v.Dir, 0), "the tmpfs is mounted once")
				require.ErrorIs(t, unix.Unmount(v.Dir, 0), unix.EINVAL)
			}
			n.tearDown(v)
		})
	}
}

// A token is also readable by the user of all containers.
func TestFilesReadableByFSGroup(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	p := podtest.Pod(t, "{securityContext: {fsGroup: 1234, runAsUser: 77}, serviceAccountName: app, volumes: [{name: v, "+volumeKinds["projected"].spec+"}]}")
	v := n.newVolume(volume.Projected, p)
	m := n.setUp(v)
	assert.Equal(t, "token of app for web", n.readFile(m, "token"))
	st := stat(t, filepath.Join(v.Dir, "..data", "token"))
	assert.EqualValues(t, unix.S_IFREG|0o640, st.Mode)
	assert.EqualValues(t, 77, st.Uid)
	assert.EqualValues(t, 1234, st.Gid)
	st = stat(t, filepath.Join(v.Dir, "..data", "a"))
	assert.EqualValues(t, unix.S_IFREG|0o644, st.Mode)
	assert.EqualValues(t, 1234, st.Gid)
	assert.EqualValues(t, 1234, stat(t, v.Dir).Gid)
	assert.NotZero(t, stat(t, v.Dir).Mode&unix.S_ISGID)
	n.tearDown(v)
}

func TestNestedMountPointsCreated(t *testing.T) {
	n := newNode(t)
	p := podtest.Pod(t, `{volumes: [{name: v, configMap: {name: app}}, {name: x}, {name: y}, {name: z}, {name: w}],
		initContainers: [{name: i, image: i, volumeMounts: [{name: v, mountPath: /etc/app/}, {name: x, mountPath: /etc/app/init}]}],
		containers: [{name: c, image: i, volumeMounts: [
			{name: y, mountPath: /etc/app/deep/er}, {name: z, mountPath: /etc/app/deep/er/still}, {name: v, mountPath: /etc/app},
			{name: x, mountPath: /etc/application}, {name: w, mountPath: /etc/app/deep-er}]}]}`)
	v := n.newVolume(volume.ConfigMap, p)
	n.setUp(v)
	for _, dir := range []string{"init", "deep/er", "deep-er"} {
		require.DirExists(t, filepath.Join(v.Dir, dir))
	}
	require.NoDirExists(t, filepath.Join(v.Dir, "deep/er/still"))
	n.putConfigMap("app", map[string]string{"a": "9"})
	m := n.setUp(v)
	assert.Equal(t, "9", n.readFile(m, "a"))
	require.DirExists(t, filepath.Join(v.Dir, "deep/er"), "an update keeps the mount points")
	n.tearDown(v)
}

func TestShowsObjectsOfVolume(t *testing.T) {
	shows := func(plugin, spec string, o volume.Object) bool {
		n := newNode(t)
		p := podtest.Pod(t, "volumes: [{name: v, "+spec+"}]")
		return n.plugins[plugin].(volume.Refresher).Shows(p, &p.Spec.Volumes[0], o)
	}
	app := volume.Object{Kind: "ConfigMap", Namespace: "default", Name: "app"}
	assert.True(t, shows(volume.ConfigMap, volumeKinds["configMap"].spec, app))
	assert.True(t, shows(volume.ConfigMap, volumeKinds["configMap"].spec, volume.Object{}))
	assert.False(t, shows(volume.ConfigMap, "configMap: {name: other}", app))
	assert.True(t, shows(volume.Projected, volumeKinds["projected"].spec, volume.Object{Kind: "Secret", Name: "key"}))
	assert.False(t, shows(volume.Secret, volumeKinds["secret"].spec, app))
	assert.True(t, shows(volume.DownwardAPI, volumeKinds["downwardAPI"].spec, volume.Object{Kind: volume.KindPod}))
	assert.False(t, shows(volume.Secret, volumeKinds["secret"].spec, volume.Object{Kind: volume.KindPod}))
}

// The error has the field of the source.
func TestCheckRefusesMissingSources(t *testing.T) {
	const all = `projected: {sources: [{serviceAccountToken: {path: t}}, {clusterTrustBundle: {name: x, path: b}},
		{podCertificate: {signerName: x, keyType: ED25519, keyPath: k}}, {configMap: {name: app, optional: true}}]}`
	check := func(o intree.Options, plugin, spec string) (fields []string) {
		p := podtest.Pod(t, "volumes: [{name: v, "+spec+"}]")
		for _, err := range intree.Plugins(o)[plugin].(volume.Checker).Check(p, &p.Spec.Volumes[0], field.NewPath("v")) {
			fields = append(fields, err.Field)
		}
		return fields
	}
	assert.Equal(t, []string{"v.sources[0].serviceAccountToken", "v.sources[1].clusterTrustBundle", "v.sources[2].podCertificate"},
		check(intree.Options{}, volume.Projected, all))
	issuer := volume.TokenIssuerFunc(func(context.Context, volume.TokenRequest) (volume.Token, error) { return volume.Token{}, nil })
	assert.Empty(t, check(intree.Options{Tokens: issuer, TrustBundles: cluster{}, Certificates: cluster{}}, volume.Projected, all))
	assert.Equal(t, []string{"v"}, check(intree.Options{}, volume.ConfigMap, "configMap: {name: app}"))
	assert.Empty(t, check(intree.Options{}, volume.ConfigMap, "configMap: {name: app, optional: true}"))
}

var errNotIssued = errors.New("not issued yet")

// cluster has one trust bundle and one certificate.
type cluster struct{}

// anchor is the certificate in the trust bundle of cluster.
const anchor = "-----BEGIN CERTIFICATE-----\nUEVN\n-----END CERTIFICATE-----\n"

func (cluster) TrustBundles(context.Context) ([]volume.TrustBundle, error) {
	return []volume.TrustBundle{{Name: "x", PEM: anchor}}, nil
}

func (cluster) Certificate(_ context.Context, pod *corev1.Pod, name string, source int) (volume.PodCertificate, error) {
	if name != "v" || source != 1 {
		return volume.PodCertificate{}, errNotIssued
	}
	return volume.PodCertificate{Key: []byte("key of " + pod.Name), Chain: []byte("chain")}, nil
}

func TestProjectedVolumeWithClusterObjects(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	n.options.TrustBundles, n.options.Certificates = cluster{}, cluster{}
	n.plugins = intree.Plugins(n.options)
	v := n.newVolume(volume.Projected, podtest.Pod(t, `volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: x, path: ca}},
		{podCertificate: {signerName: x, keyType: ED25519, keyPath: k}}, {clusterTrustBundle: {name: none, path: none, optional: true}}]}}]`))
	m := n.setUp(v)
	assert.Equal(t, anchor, n.readFile(m, "ca"))
	assert.Equal(t, "key of web", n.readFile(m, "k"))
	assert.Empty(t, n.readFile(m, "none"))
	n.tearDown(v)

	v = n.newVolume(volume.Projected, podtest.Pod(t, `volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: none, path: ca}}]}}]`))
	_, err := n.plugins[volume.Projected].SetUp(t.Context(), v)
	require.ErrorContains(t, err, "source 0: cluster trust bundle: cluster trust bundle \"none\": file does not exist")
	v = n.newVolume(volume.Projected, podtest.Pod(t, `volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: x, keyType: ED25519, keyPath: k}}]}}]`))
	_, err = n.plugins[volume.Projected].SetUp(t.Context(), v)
	require.ErrorContains(t, err, "source 0: pod certificate: not issued yet")
	require.ErrorIs(t, err, errNotIssued, "the volume engine examines the wrapped error")
	require.NoDirExists(t, v.Dir)
}

// Package plan needs the cause to choose the back-off.
func TestSetUpErrorWrapsCause(t *testing.T) {
	mounttest.Need(t)
	n := newNode(t)
	away := errors.New("no answer")
	n.options.Tokens = volume.TokenIssuerFunc(func(context.Context, volume.TokenRequest) (volume.Token, error) { return volume.Token{}, away })
	n.plugins = intree.Plugins(n.options)
	v := n.newVolume(volume.Projected, podtest.Pod(t, `volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 600}}]}}]`))
	_, err := n.plugins[volume.Projected].SetUp(t.Context(), v)
	require.ErrorIs(t, err, away)
}
