// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// A kubelet leaves the files of the plugin, without a record. Its pods were deleted while no program ran: an inline volume, and a claim of two pods.
func TestVolumesOfUnlistedPodsIdentifiedByTheirFiles(t *testing.T) {
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Drivers: driverObject(nil)})
	e.bindClaim("data")
	v, stop := e.startEngine(timeout)
	pods := []*corev1.Pod{inlinePod("a", "csi.example"), claimPod("b", "data", false), claimPod("c", "data", false)}
	for _, pod := range pods {
		require.NoError(t, v.Prepare(t.Context(), pod))
	}
	require.Len(t, e.driver.Volumes(), 4, "one is staged, three are published")
	stop()
	for _, pod := range pods {
		require.NoError(t, os.Remove(filepath.Join(e.root, "pods", string(pod.UID), "volumes.json")))
	}
	e.driver.ClearCalls()

	v, err := volume.New(volume.Options{
		Root: filepath.Join(e.root, "pods"), Plugins: map[string]volume.Plugin{volume.CSI: e.plugin}, Watcher: e.plugin, WaitTimeout: timeout, AdoptUnrecorded: true,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, v.Run(ctx)) })
	defer wg.Wait()
	defer cancel()
	require.Equal(t, []string{"uid-a", "uid-b", "uid-c"}, v.Pods())
	for _, pod := range pods {
		require.NoError(t, v.Release(t.Context(), string(pod.UID)))
	}
	require.Empty(t, e.driver.Volumes())
	require.Equal(t, []string{"NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"}, e.driver.Methods())
	require.Empty(t, v.Pods())
	require.Equal(t, []string{"plugins/kubernetes.io/csi/"}, e.listFiles())
}

// The device is that of the kubelet's files. A volume without its file counts as removed if it is not mounted.
func TestFindDevice(t *testing.T) {
	e := newEnv(t, csitest.Options{}, csi.Options{Drivers: driverObject(nil), Attachments: driverObject(nil)})
	for name, test := range map[string]struct {
		text, err string
		block     bool
		want      func(v volume.Volume) volume.Device
	}{
		"claim": {
			text: `{"specVolID":"pv1","volumeHandle":"handle1","driverName":"csi.example","nodeName":"n1","volumeLifecycleMode":"Persistent"}`,
			want: func(v volume.Volume) volume.Device { return v.Device },
		},
		"block volume": {
			block: true, text: `{"specVolID":"pv1","volumeHandle":"handle1","driverName":"csi.example"}`,
			want: func(v volume.Volume) volume.Device { return v.Device },
		},
		"inline volume":             {text: `{"specVolID":"pv1","volumeHandle":"csi-1","driverName":"csi.example","volumeLifecycleMode":"Ephemeral"}`},
		"no file":                   {},
		"no file of a block volume": {block: true, err: "no such file or directory"},
		"damaged file":              {text: `{"driverName":"../x"}`, err: `not the data of a volume: driverName "../x"`},
	} {
		t.Run(name, func(t *testing.T) {
			v := e.newPersistentVolume(test.block)
			v.UID = string(types.UID(name))
			dir := v.Dir
			if test.block {
				dir = filepath.Join(v.PluginDir, "kubernetes.io/csi/volumeDevices/pv1/data")
			}
			require.NoError(t, os.RemoveAll(dir))
			if test.text != "" {
				require.NoError(t, os.MkdirAll(dir, 0o750))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(test.text), 0o600))
			}
			want := volume.Device{}
			if test.want != nil {
				want = test.want(v)
				want.Attachable = true
			}
			found, err := e.plugin.FindDevice(asRecorded(v))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want, found)
		})
	}
}
